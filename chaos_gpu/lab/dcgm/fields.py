"""The fields that the simulated engine knows: numbers, types, what a healthy GPU shows, who watches them.

Source: `dcgm_fields.h` and `dcgm_fields.cpp` of DCGM 4.6.0; `etc/default-counters.csv` of dcgm-exporter 4.x.
"""

from typing import NamedTuple

XID = 230
INFOROM = 84
BINARY = (507,)
"""Fields whose type cannot be injected."""


class Field(NamedTuple):
    """One field of a GPU."""

    id: int
    tag: str
    live: float
    """What a healthy GPU shows."""
    systems: str = ""
    """Letters of `dcgmi health -s` that watch it."""
    metric: str = ""
    """The exporter's name, after `DCGM_FI_DEV_`; "" if it is not exported."""
    column: str = ""
    unit: str = ""
    real: bool = False
    """Whether it holds a fraction: DCGM's double instead of its 64-bit integer."""
    counter: bool = False


_ALL = (
    Field(INFOROM, "inforom_config_valid", 1, "i", column="INFVL"),
    Field(100, "sm_clock", 1980, metric="SM_CLOCK", column="SMCLK", unit="MHz"),
    Field(101, "memory_clock", 2619, metric="MEM_CLOCK", column="MMCLK", unit="MHz"),
    Field(112, "clocks_event_reasons", 0, column="CLKER"),
    Field(140, "memory_temp", 45, metric="MEMORY_TEMP", column="MMTMP", unit=" C"),
    Field(150, "gpu_temp", 41, metric="GPU_TEMP", column="TMPTR", unit=" C"),
    Field(155, "power_usage", 118.5, "t", "POWER_USAGE", "POWER", "W", real=True),
    Field(202, "pcie_replay_counter", 0, "p", "PCIE_REPLAY_COUNTER", "RPCTR", "#", counter=True),
    Field(203, "gpu_utilization", 0, metric="GPU_UTIL", column="GPUTL"),
    Field(204, "mem_copy_utilization", 0, metric="MEM_COPY_UTIL", column="MCUTL"),
    Field(XID, "xid_errors", 0, "mi", "XID_ERRORS", "XIDER"),
    Field(237, "pcie_link_gen", 5, column="PCILG"),
    Field(238, "pcie_link_width", 16, column="PCILW"),
    Field(240, "power_violation", 0, "t", "POWER_VIOLATION", "PVIOL", counter=True),
    Field(241, "thermal_violation", 0, "t", "THERMAL_VIOLATION", "TVIOL", counter=True),
    Field(250, "fb_total", 81559, column="FBTTL"),
    Field(251, "fb_free", 81007, metric="FB_FREE", column="FBFRE"),
    Field(252, "fb_used", 0, metric="FB_USED", column="FBUSD"),
    Field(310, "ecc_sbe_volatile_total", 0, metric="ECC_SBE_VOL_TOTAL", column="ESVTL", counter=True),
    Field(311, "ecc_dbe_volatile_total", 0, "m", "ECC_DBE_VOL_TOTAL", "EDVTL", counter=True),
    Field(312, "ecc_sbe_aggregate_total", 0, metric="ECC_SBE_AGG_TOTAL", column="ESATL", counter=True),
    Field(313, "ecc_dbe_aggregate_total", 0, metric="ECC_DBE_AGG_TOTAL", column="EDATL", counter=True),
    Field(392, "retired_pages_pending", 0, "m", column="RPNDG"),
    Field(393, "uncorrectable_remapped_rows", 0, "m", "UNCORRECTABLE_REMAPPED_ROWS", "URMPS", counter=True),
    Field(394, "correctable_remapped_rows", 0, metric="CORRECTABLE_REMAPPED_ROWS", column="CRMPS", counter=True),
    Field(395, "row_remap_failure", 0, "m", "ROW_REMAP_FAILURE", "RRF"),
    Field(396, "row_remap_pending", 0, column="RRP"),
    Field(409, "nvlink_flit_crc_error_count_total", 0, "n", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NFECT", counter=True),
    Field(419, "nvlink_data_crc_error_count_total", 0, "n", "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "NDECT", counter=True),
    Field(429, "nvlink_replay_error_count_total", 0, "n", "NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NRECT", counter=True),
    Field(439, "nvlink_recovery_error_count_total", 0, "n", "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NREPT", counter=True),
    Field(1507, "memory_unrepairable", 0, "m", column="MEMUR"),
)

FIELDS: dict[int, Field] = {field.id: field for field in _ALL}
EXPORTED: tuple[Field, ...] = tuple(field for field in _ALL if field.metric)
