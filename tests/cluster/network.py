"""The network of the cluster, made from inside: every interface lives and dies with a network namespace.

Each new namespace makes a pair of linked interfaces and hands the other end to the namespace of its parent process.
"""

import subprocess

BRIDGE = "nodes"
UPLINK = "uplink"


def ip(*arguments: str, namespace_of: int = 0) -> None:
    """Run ip(8), here or in the network namespace of another process."""
    inside = ["nsenter", f"--target={namespace_of}", "--net", "--"] if namespace_of else []
    subprocess.run([*inside, "ip", *arguments], check=True)


def set_up_control_plane(outside: int, name: str, addresses: dict[str, str], routes: dict[str, str]) -> None:
    """Make the bridge, and the one link to the machine.

    Args:
        outside: a process in the machine's own network namespace.
        name: of the machine's end of the link.
        addresses: gateway, outside (of the machine's end), api_service.
        routes: gateway by range of pods.
    """
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{addresses['gateway']}/24", "dev", BRIDGE)
    ip("addr", "add", f"{addresses['api_service']}/32", "dev", "lo")
    ip("link", "set", BRIDGE, "up")
    ip("link", "add", UPLINK, "type", "veth", "peer", "name", name, "netns", str(outside))
    ip("link", "set", UPLINK, "master", BRIDGE, "up")
    ip("addr", "add", f"{addresses['outside']}/24", "dev", name, namespace_of=outside)
    ip("link", "set", name, "up", namespace_of=outside)
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
