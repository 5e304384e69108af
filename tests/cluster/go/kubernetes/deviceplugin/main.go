// A device plugin for GPUs that do not exist, by the kubelet's own API.
//
// It follows a control file (JSON) while it runs:
//
//	{"nvidia.com/gpu": {"count": 8, "unhealthy": [3]}, "nvidia.com/mig-1g.18gb": {"count": 7}}
//
// A resource that appears is registered, one that disappears is withdrawn, a change of health is pushed at once. When
// the kubelet restarts, which makes its socket anew, everything is registered again.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const poll = 200 * time.Millisecond

type state struct {
	Count     int   `json:"count"`
	Unhealthy []int `json:"unhealthy"`
}

// resource is one advertised resource, served on a socket of its own.
type resource struct {
	api.UnimplementedDevicePluginServer
	name, node string
	server     *grpc.Server

	mutex   sync.Mutex
	wanted  state
	devices []*api.Device
	changed chan struct{} // closed when devices change
}

func newResource(name, node string) *resource {
	return &resource{name: name, node: node, changed: make(chan struct{})}
}

func (r *resource) update(wanted state) {
	kind := "GPU"
	if strings.Contains(r.name, "/mig-") {
		kind = "MIG"
	}
	short := strings.ReplaceAll(filepath.Base(r.name), ".", "-")
	devices := []*api.Device{}
	for index := range wanted.Count {
		health := api.Healthy
		if slices.Contains(wanted.Unhealthy, index) {
			health = api.Unhealthy
		}
		devices = append(devices, &api.Device{ID: fmt.Sprintf("%s-%s-%s-%d", kind, r.node, short, index), Health: health})
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.devices == nil || !reflect.DeepEqual(wanted, r.wanted) { // devices themselves change when they are sent
		r.wanted, r.devices = wanted, devices
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// serve makes the socket, which a restarting kubelet deletes, and registers it.
func (r *resource) serve() error {
	if r.server != nil {
		r.server.Stop()
	}
	endpoint := "chaos-gpu-test-" + strings.ReplaceAll(r.name, "/", "-") + ".sock"
	path := filepath.Join(api.DevicePluginPath, endpoint)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	r.server = grpc.NewServer()
	api.RegisterDevicePluginServer(r.server, r)
	go r.server.Serve(listener)
	link, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer link.Close()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: r.name}
	_, err = api.NewRegistrationClient(link).Register(limited, request)
	return err
}

func (r *resource) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (r *resource) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		r.mutex.Lock()
		devices, changed := r.devices, r.changed
		r.mutex.Unlock()
		log.Printf("%s: %d devices", r.name, len(devices))
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// Allocate hands out /dev/nvidiaN of the node: no driver answers there, but the device cgroup is real.
func (r *resource) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, wanted := range request.ContainerRequests {
		given := &api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(wanted.DevicesIds, ",")}}
		for _, id := range wanted.DevicesIds {
			if strings.HasPrefix(id, "GPU-") {
				given.Devices = append(given.Devices, device("/dev/nvidia"+id[strings.LastIndex(id, "-")+1:]))
			}
		}
		given.Devices = append(given.Devices, device("/dev/nvidiactl"))
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

func device(path string) *api.DeviceSpec {
	return &api.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"}
}

// follow keeps what is registered equal to what the control file says.
func follow(control, node string) {
	resources := map[string]*resource{}
	var kubelet os.FileInfo
	for ; ; time.Sleep(poll) {
		text, err := os.ReadFile(control)
		wanted := map[string]state{}
		if err != nil || json.Unmarshal(text, &wanted) != nil { // absent or half written: keep what was
			continue
		}
		current, err := os.Stat(api.KubeletSocket)
		if err != nil {
			kubelet = nil
			continue
		}
		restarted := kubelet == nil || !os.SameFile(kubelet, current) || kubelet.ModTime() != current.ModTime()
		registered := true
		for name, each := range wanted {
			known, found := resources[name]
			if !found {
				known = newResource(name, node)
			}
			known.update(each)
			if found && !restarted {
				continue
			}
			if err := known.serve(); err != nil {
				log.Printf("%s: not registered: %v", name, err)
				registered = false
				continue
			}
			resources[name] = known
		}
		for name, each := range resources {
			if _, found := wanted[name]; !found {
				each.update(state{})
			}
		}
		if registered {
			kubelet = current
		}
	}
}

func main() {
	control := flag.String("control", "", "JSON file to follow")
	node := flag.String("node", "", "name of the node, part of every device's id")
	flag.Parse()
	follow(*control, *node)
}
