"""Probes of the job layer: what becomes of a training that was interrupted."""

from typing import Any, Dict

from chaos_gpu.criteria.job import resume, saving
from chaos_gpu.faults.run import armed_run
from chaos_gpu.faults.witness import preempted, story

__all__ = ["keeps_enough", "resumes", "saves_in_grace", "saves_in_time"]


def resumes(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge what a killed training resumes from, and whether it goes on as the reference run did (CKPT-01 to CKPT-04).

    Waits until both have ended (configuration `resume_s`, seconds).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the kill was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    told = story(run, fault)
    verdicts = [
        run.record("CKPT-01", resume.judge_resume(told)),
        run.record("CKPT-02", resume.judge_steps(told)),
        run.record("CKPT-03", resume.judge_state(told)),
        run.record("CKPT-04", resume.judge_loss(told)),
    ]
    return run.publish(verdicts)


def saves_in_time(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge how long the saves of a training took, by its files (CKPT-05).

    The limit is configuration `save_s`, seconds; 0 for twice the median of the training's earlier saves.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the kill was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    told = story(run, fault)
    attempts = [*([told.before] if told.before else []), *told.after]
    blocked_s = {step: taken for attempt in attempts for step, taken in attempt.blocked_s.items()}
    return run.publish([run.record("CKPT-05", saving.judge_save_time(told.saves, blocked_s, run.settings.save_s))])


def keeps_enough(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge how many complete checkpoints a training keeps at every instant, and what it leaves lying about (CKPT-06).

    The declared number is configuration `keep`.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the kill was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    told = story(run, fault)
    return run.publish([run.record("CKPT-06", saving.judge_retention(told.saves, told.kill, run.settings.keep))])


def saves_in_grace(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether a training that is told to end saves and ends within its grace period (CKPT-07).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the preemption was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    kill, saves, ended_s = preempted(run, fault)
    return run.publish([run.record("CKPT-07", saving.judge_grace(saves, kill, ended_s))])
