"""What an experiment's configuration and its guard's arguments say, checked once."""

import json
import secrets
import time
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from chaos_gpu.criteria.xid.policy import Action, Expectation, expected_action, policy_with
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.names import GPU_NODES, RUN_ID

Remediation = Literal["cordon", "drain", "reset", "reboot", "terminate"]
DEFAULT_IMAGE = "docker.io/library/python:3.12-slim"


class Settings(BaseModel):
    """Configuration of an experiment: where, which target, and how long to wait. Times in seconds.

    Each field is an experiment's configuration key; there it comes from the environment as CHAOS_GPU_<KEY>.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    context: str = ""
    environment: str = ""
    run: str = ""
    selector: str = GPU_NODES
    node: str = ""
    gpu: str = ""
    seed: str = ""
    policy: dict[int | str, str] = Field(default_factory=dict)
    image: str = DEFAULT_IMAGE
    image_pull_secret: str = ""
    lease_s: float = Field(default=15, ge=1, le=300)
    deadline_s: float = Field(default=600, gt=0, le=86400)
    start_s: float = Field(default=120, gt=0, le=3600)
    condition_s: float = Field(default=60, gt=0, le=86400)
    cordon_s: float = Field(default=60, gt=0, le=86400)
    uncordon_s: float = Field(default=300, ge=0, le=86400)
    hold_s: float = Field(default=5, ge=0, le=3600)
    settle_s: float = Field(default=30, ge=0, le=3600)
    echo_s: float = Field(default=90, ge=0, le=3600)
    diagnosis_s: float = Field(default=3600, gt=0, le=86400)
    skew_s: float = Field(default=2, ge=0, le=86400)
    r2_days: float = Field(default=7, gt=0, le=366)
    records: str = ""
    admission: str = ""
    job: str = ""
    keep: int = Field(default=2, ge=1, le=1000)
    save_s: float = Field(default=0, ge=0, le=86400)
    resume_s: float = Field(default=1800, gt=0, le=86400)
    references: int = Field(default=1, ge=1, le=8)

    @field_validator("context", "environment", "node", "gpu", "selector", "run", "seed", "image", "job", mode="before")
    @classmethod
    def _resolved(cls, value: Any) -> Any:
        if isinstance(value, str) and "${" in value:
            raise ValueError("still holds an unresolved ${…}")
        return str(value) if isinstance(value, int) else value

    @field_validator("records", "admission", mode="before")
    @classmethod
    def _as_json(cls, value: Any) -> Any:
        """Take what an experiment's own text says in YAML, too."""
        return json.dumps(value) if isinstance(value, dict) else value

    @field_validator("policy", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        """Read it from text too: a value from the environment is."""
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            raise ValueError("is not JSON") from None

    @classmethod
    def read(cls, configuration: dict[str, Any]) -> Self:
        """Read them from a resolved experiment configuration. Raises UsageError naming key and reason."""
        try:
            found = cls.model_validate(configuration)
        except ValidationError as failure:
            raise UsageError(f"configuration: {problems(failure)}", remedy="correct the value or unset it") from failure
        if found.run and not RUN_ID.fullmatch(found.run):
            raise UsageError(
                f"run id {found.run!r} is not a DNS label of up to 32 characters",
                remedy="give CHAOS_GPU_RUN lower-case letters, digits and dashes, or unset it",
            )
        policy_with(found.policy)
        if not found.selector.strip():
            raise UsageError("the node selector is empty: that would be every node", remedy="unset CHAOS_GPU_SELECTOR")
        return found

    def expectation_for(self, code: int, text: str = "") -> Expectation:
        """Say what this site's policy calls for when an Xid comes, and why; `text` is what stands behind its code."""
        return expected_action(code, policy_with(self.policy), text)

    def action_for(self, code: int) -> Action:
        """Say what this site's policy calls for when an Xid comes."""
        return self.expectation_for(code).action

    @property
    def reaction_s(self) -> float:
        """How long the platform's reaction is waited for before there is none: twice its limit."""
        return 2 * max(self.cordon_s, self.condition_s)


class GuardArguments(BaseModel):
    """What an experiment allows; raised openly, in the experiment's own text."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    allow_remediation: list[Remediation] = Field(default_factory=list)
    nodes: int = Field(default=1, ge=1)
    gpus: int = Field(default=1, ge=1)
    share_of_nodes: float = Field(default=0.1, gt=0, le=1)
    repeats_per_day: int = Field(default=4, ge=1)
    allow_foreign_work: bool = False
    allow_codes: list[int] = Field(default_factory=list)

    @field_validator("nodes", "gpus", "share_of_nodes", "repeats_per_day", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("is not a number")
        return value

    @classmethod
    def read(cls, arguments: dict[str, Any]) -> Self:
        """Check a guard's arguments. Raises UsageError naming argument and reason."""
        try:
            return cls.model_validate(arguments)
        except ValidationError as failure:
            raise UsageError(
                f"guard: {problems(failure)}", remedy="see docs/safety.md for the guard's arguments"
            ) from failure


def new_run_id() -> str:
    """Make a run id: sortable, and unique enough for one fleet."""
    return f"{time.strftime('%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def problems(failure: ValidationError) -> str:
    """Say in one line what pydantic found, without the values (they may be secret)."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in failure.errors(include_url=False))
