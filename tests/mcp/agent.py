"""The official Python SDK of the Model Context Protocol as a client of `dunlin mcp` on a real node: agent.py BINARY

Each case runs with the handshake, and in the protocol without one.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "process"), str(HERE.parent / "insight")]

from mcp import Client, MCPError, StdioServerParameters  # noqa: E402

from client import Client as NodeClient  # noqa: E402
from process import Failed, Server, free_port  # noqa: E402

WAIT_S = 30
KEY, SECRET = "mcp-key-mcp-key-mcp-key-mcp-key-mcp", "mcp-secret-mcp-secret-mcp-secret-mcp"
ALLOWED = {f"allow_{what}_for_{whom}": True for what in ("subscribe", "publish") for whom in ("client", "anonymous")}
CONFIG = {
    "http_api": {"key": KEY},
    "client": {
        "allow_anonymous_connect_without_token": True, "token": {"hmac_secret_key": SECRET},
        # No client of these tests answers pings.
        "ping_interval": "600s", "pong_timeout": "500s",
    },
    "channel": {
        "namespaces": [
            {"name": "chat", "presence": True, "history_size": 10, "history_ttl": "60s", **ALLOWED},
            {"name": "arena", "history_size": 10, "history_ttl": "60s", "room": {"simulation": "crowd"}, **ALLOWED},
        ],
    },
    "health": {"enabled": True},
    "prometheus": {"enabled": True},
    "shards": 2,
}
READING = {
    "info", "sessions", "explain", "channels", "presence", "history", "rooms", "room_info", "metrics", "configuration", "docs_search", "docs_read",
}


class Node(Server):
    def configure(self):
        config = super().configure()
        self.internal_port = free_port()
        return config | {"http_server": config["http_server"] | {"internal_address": self.host, "internal_port": self.internal_port}}

    def wait_until_healthy(self):
        self.wait_for_health(self.internal_port, self.host)

    def agent(self, mode, *options):
        """An agent that starts `dunlin mcp` with the node's configuration."""
        args = ["mcp", "--config", str(self.config_path), *options]
        return Client(StdioServerParameters(command=self.binary, args=args), mode=mode, read_timeout_seconds=60)


def expect(is_so, what):
    if not is_so:
        raise Failed(str(what))


async def call(agent, tool, **arguments):
    """The text of a result, and whether it is an error."""
    result = await agent.call_tool(tool, arguments)
    expect(len(result.content) == 1 and result.content[0].type == "text", result)
    return result.content[0].text, bool(result.is_error)


async def read(agent, tool, **arguments):
    """The JSON of a result."""
    text, is_error = await call(agent, tool, **arguments)
    expect(not is_error, text)
    return json.loads(text)


async def reading(node, mode):
    channel = f"chat:{mode}"
    session = NodeClient(node.port).connect().subscribe(channel).read()
    async with node.agent(mode) as agent:
        expect(agent.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28"), agent.protocol_version)
        expect(agent.server_info.name == "dunlin" and "explain" in agent.instructions, agent.server_info)
        tools = (await agent.list_tools()).tools
        expect({tool.name for tool in tools} == READING, [tool.name for tool in tools])
        expect(all(tool.annotations.read_only_hint for tool in tools), tools)
        expect((await read(agent, "info"))["nodes"][0]["num_clients"] >= 1, "info")
        sessions = (await read(agent, "sessions", channel=channel))["sessions"]
        expect(len(sessions) == 1 and sessions[0]["verdict"]["text"], sessions)
        explained = await read(agent, "explain", client=sessions[0]["client"])
        expect(explained["sessions"][0]["client"] == sessions[0]["client"], explained)
        channels = (await read(agent, "channels", pattern=channel))["channels"]
        expect(channels == [{"channel": channel, "num_clients": 1}], channels)
        presence = (await read(agent, "presence", channel=channel))["presence"]
        expect([entry["client"] for entry in presence] == [sessions[0]["client"]], presence)
        expect((await read(agent, "history", channel=channel))["publications"] == [], "history")
        expect((await read(agent, "rooms"))["rooms"] == [], "rooms")
        text, is_error = await call(agent, "metrics", prefix="dunlin_sessions")
        expect(not is_error and "# TYPE dunlin_sessions" in text, text)
    session.close()


async def configuration(node, mode):
    """As the node holds it, without its secrets, and that of the file once the node is gone."""
    async with node.agent(mode) as agent:
        text, is_error = await call(agent, "configuration")
        shown = json.loads(text)
        expect(not is_error and shown["source"] == "the running node", text)
        values = {setting["key"]: setting for setting in shown["settings"]}
        expect(values["client.ping_interval"]["value"] in ("600s", "10m"), values["client.ping_interval"])
        expect(values["http_api.key"] == {"key": "http_api.key", "value": None, "hidden": True}, values["http_api.key"])
        expect(KEY not in text and SECRET not in text, "the configuration has a secret")
        only = await read(agent, "configuration", prefix="channel.namespaces")
        expect(only["settings"] and all(one["key"].startswith("channel.namespaces") for one in only["settings"]), only)


async def documentation(node, mode):
    async with node.agent(mode) as agent:
        resources = {resource.uri: resource for resource in (await agent.list_resources()).resources}
        page = (await agent.read_resource("dunlin://docs/mcp.md")).contents[0]
        expect("dunlin://docs/mcp.md" in map(str, resources) and page.text.startswith("# "), page)
        found = (await read(agent, "docs_search", query="client.queue_max_size"))["sections"]
        expect(found and all("queue_max_size" in one["excerpt"] for one in found[:1]), found)
        text, is_error = await call(agent, "docs_read", page=found[0]["page"], section=found[0]["section"])
        expect(not is_error and text.startswith("#"), text[:500])
        for address in ("dunlin://docs/none.md", "file:///etc/passwd"):
            try:
                raise Failed(f"{address}: {await agent.read_resource(address)}")
            except MCPError as error:
                expect(error.code == (-32002 if mode == "legacy" else -32602), error)


async def errors(node, mode):
    async with node.agent(mode) as agent:
        for tool, arguments, expected in (
            ("presence", {"channel": "none:a"}, "error 102: unknown channel"),
            ("presence", {}, "`channel` is missing"),
            ("room_info", {"channel": "arena:1"}, "error 104: not found"),
            ("sessions", {"limit": 0}, "`limit` is 0, and has to be an integer from 1 to 1000"),
            ("sessions", {"address": "nowhere"}, "error 107: bad request"),
            ("publish", {"channel": "chat:a", "data": 1}, "started without `--allow-writes`"),
        ):
            text, is_error = await call(agent, tool, **arguments)
            expect(is_error and expected in text, (tool, arguments, text))
        node.stop()
        text, is_error = await call(agent, "info")
        expect(is_error and "`http_server.internal_port`" in text and "Start the node" in text, text)
        shown = await read(agent, "configuration")
        expect(shown["source"].startswith("the file and the environment"), shown["source"])
        node.config_path.write_text("{")
        text, is_error = await call(agent, "info")
        expect(is_error and "`dunlin check-config`" in text, text)
    node.start()


async def writing(node, mode):
    async with node.agent(mode, "--allow-writes") as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        expect(READING < set(tools) and tools["disconnect"].annotations.destructive_hint, tools)
        channel = f"chat:written-{mode}"
        session = NodeClient(node.port).connect().subscribe(channel).read()
        published = await read(agent, "publish", channel=channel, data={"text": "hello"})
        expect(published["offset"] > 0, published)
        kept = (await read(agent, "history", channel=channel, limit=1))["publications"]
        expect(kept[0]["data"] == {"text": "hello"}, kept)
        client = (await read(agent, "sessions", channel=channel))["sessions"][0]["client"]
        await read(agent, "disconnect", user="", client=client)
        deadline = time.monotonic() + WAIT_S
        while (await read(agent, "sessions", channel=channel))["sessions"]:
            expect(time.monotonic() < deadline, "it is still connected")
        session.close()


async def all_cases(binary):
    failures = count = 0
    with tempfile.TemporaryDirectory(prefix="dunlin-mcp-") as folder:
        node = Node(binary, Path(folder), CONFIG)
        node.start()
        try:
            for case in (reading, configuration, documentation, errors, writing):
                for mode in ("legacy", "auto"):
                    count += 1
                    try:
                        await asyncio.wait_for(case(node, mode), 120)
                    except Exception as failure:  # noqa: BLE001: also a group of exceptions of the SDK's tasks
                        failures += 1
                        print(f"FAILED  {case.__name__} ({mode}): {failure!r}\n{node.last_log(1_000)}")
            node.stop()
        finally:
            node.end()
    print(f"{count} cases of the MCP SDK, {failures} failed")
    return failures


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(all_cases(sys.argv[1])) else 0)
