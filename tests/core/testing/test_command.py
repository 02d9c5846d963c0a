"""``lmcachectl fault proxy``."""

import signal
import socket
import subprocess
import sys

import pytest

from lmcache_core.cli.main import main

RUN = [
    sys.executable,
    "-u",
    "-c",
    "import sys; from lmcache_core.cli.main import main; sys.exit(main())",
    "fault",
    "proxy",
]


def shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def run_until_it_listens(*options: str) -> tuple[subprocess.Popen[str], tuple[str, int], str]:
    process = subprocess.Popen([*RUN, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    host, _, port = line.removeprefix("listening on ").split(" ")[0].rpartition(":")
    return process, (host, int(port)), line


def test_what_it_did_is_printed_at_the_end(echo) -> None:
    process, address, line = run_until_it_listens("--to", shown(echo.address), "--cut-after-bytes", "3")
    with process:
        with socket.create_connection(address, 10.0) as client:
            client.sendall(b"12345")
            data = client.recv(5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

    assert line == f"listening on 127.0.0.1:{address[1]} for {echo.address[0]}:{echo.address[1]}: Cut\n"
    assert data == b"123"
    assert out == "1 connection(s), 0 of them without the server, 5 bytes of requests, 3 of replies\nCut: 1\n"
    assert (process.returncode, err) == (0, "")


def test_a_plain_kill_ends_it_well(echo) -> None:
    process, _, _ = run_until_it_listens("--to", shown(echo.address))
    with process:
        process.terminate()
        out, _ = process.communicate(timeout=20)

    assert out == "0 connection(s), 0 of them without the server, 0 bytes of requests, 0 of replies\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        ((), "no fault"),
        (("--latency-ms", "5", "--jitter-ms", "5"), "Latency"),
        (("--refuse",), "Refuse"),
        (("--blackhole",), "Blackhole"),
        (("--hang",), "Hang"),
        (("--half-open",), "HalfOpen"),
        (("--drip-bytes-per-s", "10"), "Drip"),
        (("--corrupt-every-bytes", "10"), "Corrupt"),
        (("--error", "oom", "--error", "loading", "--command", "get"), "ErrorReply, ErrorReply"),
        (("--hang", "--up-s", "0.01"), "Hang"),
        (("--hang", "--down-s", "0.01"), "Hang"),
    ],
)
def test_each_fault_has_its_option(options: tuple[str, ...], faults: str, capsys) -> None:
    assert main(["fault", "proxy", "--to", "127.0.0.1:1", "--for-s", "0.05", *options]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f" for 127.0.0.1:1: {faults}")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--to", "here"), "error: --to: 'here' is no HOST:PORT, such as 127.0.0.1:6379\n"),
        (("--to", ":6379"), "error: --to: ':6379' is no HOST:PORT, such as 127.0.0.1:6379\n"),
        (("--to", "a:0"), "error: --to: 'a:0' is no HOST:PORT, such as 127.0.0.1:6379\n"),
        (
            ("--to", "a:1", "--listen", "b:70000"),
            "error: --listen: 'b:70000' is no HOST:PORT, such as 127.0.0.1:6379\n",
        ),
    ],
)
def test_a_bad_address_is_the_users(options: tuple[str, ...], sentence: str, capsys) -> None:
    assert main(["fault", "proxy", *options]) == 2
    assert capsys.readouterr().err == sentence


def test_a_command_without_an_error_is_the_users(capsys) -> None:
    assert main(["fault", "proxy", "--to", "a:1", "--command", "GET"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "error: --command belongs to --error; name one"


def test_a_port_that_is_taken_is_named(echo, capsys) -> None:
    assert main(["fault", "proxy", "--to", "a:1", "--listen", shown(echo.address)]) == 1
    assert (
        capsys.readouterr().err
        == f"error: --listen: cannot listen on 127.0.0.1:{echo.address[1]}: address already in use\n"
    )
