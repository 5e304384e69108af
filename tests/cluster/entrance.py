"""The one way in: accepts on a socket of the machine's loopback, and connects to the API server inside. Stdlib only.

`python entrance.py FD HOST PORT`: a socket belongs to the network namespace that it was made in, wherever it is used.
"""

import asyncio
import contextlib
import socket
import sys

CHUNK = 1 << 16


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass bytes on to the end, and the end too."""
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()


async def serve(fd: int, host: str, port: int) -> None:
    """Serve until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(host, port)
        except OSError:  # the API server does not listen: the caller sees its connection end
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
        writer.close()
        there_writer.close()

    server = await asyncio.start_server(connected, sock=socket.socket(fileno=fd))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
