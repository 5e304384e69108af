"""The network of the cluster, made from inside: every interface lives and dies with a network namespace.

A node's namespace makes a pair of linked interfaces and hands the other end to the control plane's.
"""

import subprocess

BRIDGE = "nodes"


def ip(*arguments: str, namespace_of: int = 0) -> None:
    """Run ip(8), here or in the network namespace of another process."""
    inside = ["nsenter", f"--target={namespace_of}", "--net", "--"] if namespace_of else []
    subprocess.run([*inside, "ip", *arguments], check=True)


def set_up_control_plane(gateway: str, api_service: str, routes: dict[str, str]) -> None:
    """Make the bridge. Nothing leads out of this namespace.

    Args:
        gateway: address of the bridge.
        api_service: address of the service `kubernetes`.
        routes: node by range of pods.
    """
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{gateway}/24", "dev", BRIDGE)
    ip("addr", "add", f"{api_service}/32", "dev", "lo")
    ip("link", "set", BRIDGE, "up")
    for pods, node in routes.items():
        ip("route", "add", pods, "via", node)


def set_up_node(control_plane: int, name: str, address: str, gateway: str, routes: dict[str, str]) -> None:
    """Link a node's namespace to the bridge.

    Args:
        control_plane: a process in the control plane's network namespace.
        name: of the control plane's end of the link; setting it down cuts the node off.
        address: the node's.
        gateway: the bridge's.
        routes: node by range of pods, for the other nodes.
    """
    subprocess.run(  # what is left of the node's last life, if the kernel has not collected it yet
        ["nsenter", f"--target={control_plane}", "--net", "--", "ip", "link", "del", name],
        check=False,
        stderr=subprocess.DEVNULL,
    )
    ip("link", "set", "lo", "up")
    ip("link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", str(control_plane))
    ip("link", "set", name, "master", BRIDGE, "up", namespace_of=control_plane)
    ip("addr", "add", f"{address}/24", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    ip("route", "add", "default", "via", gateway)
    for pods, node in routes.items():
        ip("route", "add", pods, "via", node)
