/* Stand-in for libcuda.so.1 and libnvidia-ml.so.1: one GPU whose driver writes a process's faults into a log.
 *
 * What a kernel does is read off its PTX and its argument, and told in the records that a driver 580 wrote on an H200.
 * The GPU is the one that NVIDIA_VISIBLE_DEVICES names, at the address that the files below NVIDIA_PROC_PATH give it.
 * Records go to the end of STANDIN_LOG, or, on a lab, to KMSG_WRITE_PATH. STANDIN_GPUS, STANDIN_PROCESSES, STANDIN_USED_MIB, STANDIN_FAIL (a function that fails) and
 * STANDIN_BEFORE (a record of somebody else's, written first) change what there is.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char ptx[4096];
static uint64_t where;
static int launched, sequence = 500;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static int fails(const char *function) {
    const char *name = getenv("STANDIN_FAIL");
    return name && !strcmp(name, function) ? 999 : 0;
}

static const char *uuid_text(void) { return getenv("NVIDIA_VISIBLE_DEVICES"); }

/* Find the GPU's address, `dddd:bb:dd.f`, as the driver's files name their directories. */
static const char *bus_id(void) {
    static char found[32];
    char path[512], facts[2048];
    snprintf(path, sizeof path, "%s/gpus", getenv("NVIDIA_PROC_PATH"));
    DIR *all = opendir(path);
    for (struct dirent *each; all && (each = readdir(all));) {
        snprintf(path, sizeof path, "%s/gpus/%.31s/information", getenv("NVIDIA_PROC_PATH"), each->d_name);
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(facts, 1, sizeof facts - 1, file) : 0;
        facts[length] = 0;
        if (file)
            fclose(file);
        if (strstr(facts, uuid_text()))
            snprintf(found, sizeof found, "%.31s", each->d_name);
    }
    if (all)
        closedir(all);
    return found;
}

static void record(const char *text) {
    struct timespec now;
    char line[1024];
    const char *log = getenv("STANDIN_LOG");
    int fd = open(log ? log : getenv("KMSG_WRITE_PATH"), O_WRONLY | O_APPEND);
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long usec = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    int length = log ? snprintf(line, sizeof line, "4,%d,%lld,c;%s\n", ++sequence, usec, text)
                     : snprintf(line, sizeof line, "<4>%s\n", text);
    if (fd < 0 || write(fd, line, length) != length)
        abort();
    close(fd);
}

static void process(char *out, size_t size) {
    char name[17] = "";
    FILE *file = fopen("/proc/self/comm", "r");
    if (file && fgets(name, sizeof name, file))
        name[strcspn(name, "\n")] = 0;
    if (file)
        fclose(file);
    snprintf(out, size, "pid=%d, name=%s", getpid(), name);
}

static void xid(int code, int named, const char *words) {
    char whose[64], text[512];
    process(whose, sizeof whose);
    snprintf(text, sizeof text, "NVRM: Xid (PCI:%.10s): %d, %s%s%s", bus_id(), code, named ? whose : "",
             named ? ", " : "", words);
    record(text);
}

int cuInit(unsigned flags) { return fails("cuInit") + (int)flags; }

int cuDeviceGetCount(int *count) {
    *count = (int)number("STANDIN_GPUS", 1);
    return fails("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return fails("cuDeviceGet");
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *digits = uuid_text() + strlen("GPU-");
    for (int at = 0; at < 16; digits += 2) {
        digits += *digits == '-';
        sscanf(digits, "%2hhx", &uuid[at++]);
    }
    return fails("cuDeviceGetUuid") + device;
}

int cuDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "%s", bus_id());
    for (; *text; text++)
        *text = (char)(*text >= 'a' ? *text - 32 : *text); /* as the driver writes it */
    return fails("cuDeviceGetPCIBusId") + device;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = ptx;
    return fails("cuDevicePrimaryCtxRetain") + device;
}

int cuCtxSetCurrent(void *context) { return context == ptx ? fails("cuCtxSetCurrent") : 201; }

int cuModuleLoadData(void **module, const char *image) {
    snprintf(ptx, sizeof ptx, "%s", image);
    *module = ptx;
    return strstr(ptx, ".visible .entry fault(") ? fails("cuModuleLoadData") : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "fault") ? 500 : fails("cuModuleGetFunction");
}

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    *address = size ? 0x7fa800000000 : 0;
    return fails("cuMemAlloc_v2");
}

int cuLaunchKernel(void *kernel, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    where = *(uint64_t *)arguments[0];
    launched = kernel == ptx && a * b * c * d * e * f == 1 && !shared && !stream && !extra;
    return launched ? fails("cuLaunchKernel") : 1;
}

int cuCtxSynchronize(void) {
    if (!launched)
        return 0;
    if (getenv("STANDIN_BEFORE"))
        record(getenv("STANDIN_BEFORE"));
    if (number("STANDIN_SILENT", 0))
        return 700;
    if (strstr(ptx, "trap;")) {
        xid(43, 1, "channel 0x0000000a");
        return 719;
    }
    if (where & 3) {
        xid(13, 0, "Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address");
        xid(13, 0, "Graphics Exception: ESR 0x519730=0x500000f 0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174");
        xid(13, 1, "Graphics Exception: channel 0x0000000a, Class 0000cbc0, Offset 00000510, Data 0017e2ac");
        return 716;
    }
    xid(31, 1, "channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ "
               "0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE");
    return 700;
}

int nvmlInit_v2(void) { return fails("nvmlInit_v2"); }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = ptx;
    return strcmp(uuid, uuid_text()) ? 6 : fails("nvmlDeviceGetHandleByUUID");
}

int nvmlDeviceGetMemoryInfo(void *device, uint64_t *memory) {
    memory[0] = 143771ULL << 20;
    memory[2] = (uint64_t)number("STANDIN_USED_MIB", 4) << 20;
    memory[1] = memory[0] - memory[2];
    return device == ptx ? fails("nvmlDeviceGetMemoryInfo") : 2;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *infos) {
    unsigned room = *count;
    *count = (unsigned)number("STANDIN_PROCESSES", 0);
    if (device != ptx || infos)
        return 2;
    return *count > room ? 7 : fails("nvmlDeviceGetComputeRunningProcesses");
}
