/**
 * Programs that do what was done in the page: with the official SDKs, and with `curl` for the server API. `tests/sdk/play`
 * runs those in JavaScript, Go, Python and Java.
 */

/** @typedef {import("./codec.js").Encoding} Encoding */

/**
 * What was done with a channel, each with its last values; `undefined` if it was not.
 * @typedef {object} Done
 * @property {string} url
 * @property {Encoding} encoding
 * @property {boolean} hasToken
 * @property {string} apiUrl of the server API
 * @property {string} apiKey
 * @property {string | undefined} channel that was subscribed
 * @property {unknown} data that was published
 * @property {boolean} presence
 * @property {number | undefined} historyLimit
 * @property {boolean} unsubscribe
 */

/** The SDK of each language, and how to get it. */
export const LANGUAGES = /** @type {const} */ ({
  javascript: { name: "JavaScript", get: "npm install centrifuge; for browsers, and for Node.js from version 22 on" },
  go: { name: "Go", get: "go get github.com/centrifugal/centrifuge-go" },
  python: { name: "Python", get: "pip install centrifuge-python" },
  java: { name: "Java", get: "Maven: io.github.centrifugal:centrifuge-java" },
  swift: { name: "Swift", get: "Swift Package Manager: github.com/centrifugal/centrifuge-swift" },
  dart: { name: "Dart", get: "dart pub add centrifuge" },
  curl: { name: "curl", get: "the server API, which your backend calls" },
});

/** @typedef {keyof typeof LANGUAGES} Language */

/** What stands for a token: the real one is no part of a program. */
const TOKEN = "YOUR_TOKEN";

/**
 * @param {Language} language
 * @param {Done} done
 */
export function codeOf(language, done) {
  const lines = WRITERS[language](done);
  // Empty parts leave empty lines, which then follow each other, or are the last ones of a block.
  return `${lines.join("\n").replace(/\n{3,}/g, "\n\n").replace(/\n\n( *\})/g, "\n$1").trim()}\n`;
}

/** @type {Record<Language, (done: Done) => string[]>} */
const WRITERS = { javascript, go, python, java, swift, dart, curl };

/**
 * Lines, if something was done.
 * @param {boolean} isDone
 * @param {...string} lines
 */
const when = (isDone, ...lines) => (isDone ? lines : []);

/** Lines further to the right. @param {string} space @param {string[]} lines */
const indented = (space, lines) => lines.map((line) => (line === "" ? "" : space + line));

/** A text in quotes, as C and many other languages write it. @param {string} text */
const quoted = (text) => JSON.stringify(text);

/** The payload as JSON on one line. @param {unknown} data */
const jsonOf = (data) => JSON.stringify(data) ?? "";

/** @param {Done} done */
function javascript({ url, encoding, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const isBinary = encoding === "protobuf";
  const read = (/** @type {string} */ value) => (isBinary ? `JSON.parse(new TextDecoder().decode(${value}))` : value);
  const written = isBinary ? `new TextEncoder().encode(JSON.stringify(${jsonOf(data)}))` : jsonOf(data);
  return [
    `import { Centrifuge } from "centrifuge${isBinary ? "/build/protobuf" : ""}";`,
    "",
    `const client = new Centrifuge(${quoted(url)}${hasToken ? `, { token: ${quoted(TOKEN)} }` : ""});`,
    'client.on("connected", (context) => console.log("connected as", context.client));',
    'client.on("disconnected", (context) => console.log("disconnected:", context.code, context.reason));',
    "",
    ...when(
      channel !== undefined,
      `const subscription = client.newSubscription(${quoted(channel ?? "")});`,
      'subscription.on("subscribed", (context) => console.log("subscribed, recovered:", context.recovered));',
      `subscription.on("publication", (context) => console.log("publication", context.offset, ${read("context.data")}));`,
      "subscription.subscribe();",
    ),
    "client.connect();",
    "",
    ...when(data !== undefined, `await subscription.publish(${written});`),
    ...when(presence, "const { clients } = await subscription.presence();", 'console.log("present:", Object.keys(clients));'),
    ...when(
      historyLimit !== undefined,
      `const { publications } = await subscription.history({ limit: ${historyLimit} });`,
      `for (const { offset, data } of publications) console.log("history", offset, ${read("data")});`,
    ),
    ...when(unsubscribe, "subscription.unsubscribe();"),
  ];
}

/** @param {Done} done */
function go({ url, encoding, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const json = jsonOf(data);
  const payload = json.includes("`") ? quoted(json) : `\`${json}\``;
  const hasRequests = data !== undefined || presence || historyLimit !== undefined;
  const check = ["\tif err != nil {", "\t\tlog.Fatal(err)", "\t}"];
  return [
    "package main", "",
    "import (", ...when(hasRequests, '\t"context"'), '\t"log"', "", '\t"github.com/centrifugal/centrifuge-go"', ")", "",
    "func main() {",
    `\tclient := centrifuge.New${encoding === "json" ? "Json" : "Protobuf"}Client(${quoted(url)}, centrifuge.Config{${
      hasToken ? `Token: ${quoted(TOKEN)}` : ""}})`,
    "\tdefer client.Close()",
    '\tclient.OnConnected(func(e centrifuge.ConnectedEvent) { log.Println("connected as", e.ClientID) })',
    '\tclient.OnDisconnected(func(e centrifuge.DisconnectedEvent) { log.Println("disconnected:", e.Code, e.Reason) })',
    "",
    ...when(
      channel !== undefined,
      `\tsub, err := client.NewSubscription(${quoted(channel ?? "")})`, ...check,
      '\tsub.OnSubscribed(func(e centrifuge.SubscribedEvent) { log.Println("subscribed, recovered:", e.Recovered) })',
      '\tsub.OnPublication(func(e centrifuge.PublicationEvent) { log.Printf("publication %d %s", e.Offset, e.Data) })',
      "\tif err := sub.Subscribe(); err != nil {", "\t\tlog.Fatal(err)", "\t}",
    ),
    "\tif err := client.Connect(); err != nil {", "\t\tlog.Fatal(err)", "\t}",
    "",
    ...when(
      data !== undefined,
      `\tif _, err := sub.Publish(context.Background(), []byte(${payload})); err != nil {`, "\t\tlog.Fatal(err)", "\t}",
    ),
    ...when(
      presence,
      "\tpresence, err := sub.Presence(context.Background())", ...check,
      "\tfor client := range presence.Clients {", '\t\tlog.Println("present:", client)', "\t}",
    ),
    ...when(
      historyLimit !== undefined,
      `\thistory, err := sub.History(context.Background(), centrifuge.WithHistoryLimit(${historyLimit}))`, ...check,
      "\tfor _, publication := range history.Publications {",
      '\t\tlog.Printf("history %d %s", publication.Offset, publication.Data)', "\t}",
    ),
    ...when(unsubscribe, "\tif err := sub.Unsubscribe(); err != nil {", "\t\tlog.Fatal(err)", "\t}"),
    "\tselect {}",
    "}",
  ];
}

/** @param {Done} done */
function python({ url, encoding, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const isBinary = encoding === "protobuf";
  const read = (/** @type {string} */ value) => (isBinary ? `json.loads(${value})` : value);
  const literal = isBinary ? `json.dumps(${pythonOf(data)}).encode()` : pythonOf(data);
  const options = `${isBinary ? ", use_protobuf=True" : ""}${hasToken ? `, token=${quoted(TOKEN)}` : ""}`;
  return [
    "import asyncio", ...when(isBinary && channel !== undefined, "import json"),
    "", "from centrifuge import Client, ClientEventHandler, SubscriptionEventHandler",
    "", "",
    "class ClientEvents(ClientEventHandler):",
    "    async def on_connected(self, ctx):",
    '        print("connected as", ctx.client)', "",
    "    async def on_disconnected(self, ctx):",
    '        print("disconnected:", ctx.code, ctx.reason)',
    "",
    ...when(
      channel !== undefined,
      "",
      "class SubscriptionEvents(SubscriptionEventHandler):",
      "    async def on_subscribed(self, ctx):",
      '        print("subscribed, recovered:", ctx.recovered)', "",
      "    async def on_publication(self, ctx):",
      `        print("publication", ctx.pub.offset, ${read("ctx.pub.data")})`,
      "",
    ),
    "async def main():",
    `    client = Client(${quoted(url)}, events=ClientEvents()${options})`,
    ...when(
      channel !== undefined,
      `    subscription = client.new_subscription(${quoted(channel ?? "")}, events=SubscriptionEvents())`,
      "    await subscription.subscribe()",
    ),
    "    await client.connect()",
    ...when(data !== undefined, `    await subscription.publish(${literal})`),
    ...when(presence, "    presence = await subscription.presence()", '    print("present:", list(presence.clients))'),
    ...when(
      historyLimit !== undefined,
      `    history = await subscription.history(limit=${historyLimit})`,
      "    for publication in history.publications:",
      `        print("history", publication.offset, ${read("publication.data")})`,
    ),
    ...when(unsubscribe, "    await subscription.unsubscribe()"),
    "    await asyncio.Event().wait()", "", "",
    "asyncio.run(main())",
  ];
}

/** A value as Python writes it. @param {unknown} value @returns {string} */
function pythonOf(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, one]) => `${quoted(key)}: ${pythonOf(one)}`).join(", ")}}`;
}

/** @param {Done} done */
function java({ url, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const print = (/** @type {string} */ what) => `System.out.println(${what})`;
  const checked = (/** @type {string} */ error) => [`    if (${error} != null) {`, `        ${print(`"failed: " + ${error}`)};`, "        return;", "    }"];
  const questions = [
    ...when(
      presence,
      "subscription.presence((presenceError, presence) -> {",
      ...checked("presenceError"), `    ${print('"present: " + presence.getClients().keySet()')};`, "});",
    ),
    ...when(
      historyLimit !== undefined,
      `subscription.history(new HistoryOptions.Builder().withLimit(${historyLimit}).build(), (historyError, history) -> {`,
      ...checked("historyError"),
      "    for (Publication publication : history.getPublications()) {",
      `        ${print('"history " + publication.getOffset() + " " + new String(publication.getData(), StandardCharsets.UTF_8)')};`,
      "    }", "});",
    ),
    ...when(unsubscribe, "subscription.unsubscribe();"),
  ];
  return [
    "import io.github.centrifugal.centrifuge.*;", "import java.nio.charset.StandardCharsets;", "",
    "public class Main {",
    "    public static void main(String[] args) throws Exception {",
    "        Options options = new Options();",
    ...when(hasToken, `        options.setToken(${quoted(TOKEN)});`),
    `        Client client = new Client(${quoted(url)}, options, new EventListener() {`,
    "            @Override public void onConnected(Client client, ConnectedEvent event) {",
    `                ${print('"connected as " + event.getClient()')};`, "            }",
    "            @Override public void onDisconnected(Client client, DisconnectedEvent event) {",
    `                ${print('"disconnected: " + event.getCode() + " " + event.getReason()')};`, "            }",
    "        });",
    "",
    ...when(
      channel !== undefined,
      `        Subscription subscription = client.newSubscription(${quoted(channel ?? "")}, new SubscriptionEventListener() {`,
      "            @Override public void onSubscribed(Subscription sub, SubscribedEvent event) {",
      `                ${print('"subscribed, recovered: " + event.getRecovered()')};`, "            }",
      "            @Override public void onPublication(Subscription sub, PublicationEvent event) {",
      `                ${print('"publication " + event.getOffset() + " " + new String(event.getData(), StandardCharsets.UTF_8)')};`,
      "            }",
      "        });",
      "        subscription.subscribe();",
    ),
    "        client.connect();",
    "",
    ...when(
      data !== undefined,
      `        subscription.publish(${quoted(jsonOf(data))}.getBytes(StandardCharsets.UTF_8), (publishError, published) -> {`,
      ...indented("        ", checked("publishError")), ...indented("            ", questions), "        });",
    ),
    ...when(data === undefined, ...indented("        ", questions)),
    "        Thread.currentThread().join();",
    "    }", "}",
  ];
}

/** @param {Done} done */
function swift({ url, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const textOf = (/** @type {string} */ bytes) => `String(decoding: ${bytes}, as: UTF8.self)`;
  const failure = '    case .failure(let error): print("failed:", error)';
  const questions = [
    ...when(
      presence,
      "subscription.presence { result in", "    switch result {",
      '    case .success(let found): print("present:", Array(found.presence.keys))', failure, "    }", "}",
    ),
    ...when(
      historyLimit !== undefined,
      `subscription.history(limit: ${historyLimit}) { result in`, "    switch result {",
      "    case .success(let found):",
      `        for publication in found.publications { print("history", publication.offset, ${textOf("publication.data")}) }`,
      failure, "    }", "}",
    ),
    ...when(unsubscribe, "subscription.unsubscribe()"),
  ];
  return [
    "import Foundation", "import SwiftCentrifuge", "",
    "final class Events: CentrifugeClientDelegate, CentrifugeSubscriptionDelegate {",
    "    func onConnected(_ client: CentrifugeClient, _ event: CentrifugeConnectedEvent) {",
    '        print("connected as", event.client)', "    }", "",
    "    func onDisconnected(_ client: CentrifugeClient, _ event: CentrifugeDisconnectedEvent) {",
    '        print("disconnected:", event.code, event.reason)', "    }",
    "",
    ...when(
      channel !== undefined,
      "    func onSubscribed(_ sub: CentrifugeSubscription, _ event: CentrifugeSubscribedEvent) {",
      '        print("subscribed, recovered:", event.recovered)', "    }", "",
      "    func onPublication(_ sub: CentrifugeSubscription, _ event: CentrifugePublicationEvent) {",
      `        print("publication", event.offset, ${textOf("event.data")})`, "    }",
    ),
    "}",
    "",
    "// The client keeps no strong reference to it.",
    "let events = Events()",
    `let config = CentrifugeClientConfig(${hasToken ? `token: ${swiftOf(TOKEN)}` : ""})`,
    `let client = CentrifugeClient(endpoint: ${swiftOf(url)}, config: config, delegate: events)`,
    ...when(
      channel !== undefined,
      `let subscription = try client.newSubscription(channel: ${swiftOf(channel ?? "")}, delegate: events)`,
      "subscription.subscribe()",
    ),
    "client.connect()",
    "",
    ...when(
      data !== undefined,
      `subscription.publish(data: Data(${swiftOf(jsonOf(data))}.utf8)) { result in`,
      '    if case .failure(let error) = result { print("failed:", error) }', ...indented("    ", questions), "}",
    ),
    ...when(data === undefined, ...questions),
    "RunLoop.main.run()",
  ];
}

/** A text of one line as Swift writes it, in which nothing has a meaning. @param {string} text */
function swiftOf(text) {
  const marks = "#".repeat(Math.max(0, ...[...text.matchAll(/["\\](#*)/g)].map(([, hashes = ""]) => hashes.length + 1)));
  return `${marks}"${text}"${marks}`;
}

/** @param {Done} done */
function dart({ url, hasToken, channel, data, presence, historyLimit, unsubscribe }) {
  const hasJson = channel !== undefined;
  return [
    ...when(hasJson, "import 'dart:convert';", ""),
    "import 'package:centrifuge/centrifuge.dart' as centrifuge;", "",
    "Future<void> main() async {",
    hasToken
      ? `  final client = centrifuge.createClient(${dartOf(url)}, centrifuge.ClientConfig(token: ${dartOf(TOKEN)}));`
      : `  final client = centrifuge.createClient(${dartOf(url)});`,
    "  client.connected.listen((event) => print('connected as ${event.client}'));",
    "  client.disconnected.listen((event) => print('disconnected: ${event.code} ${event.reason}'));",
    "",
    ...when(
      channel !== undefined,
      `  final subscription = client.newSubscription(${dartOf(channel ?? "")});`,
      "  subscription.subscribed.listen((event) => print('subscribed, recovered: ${event.recovered}'));",
      "  subscription.publication.listen((event) => print('publication ${event.offset} ${utf8.decode(event.data)}'));",
      "  await subscription.subscribe();",
    ),
    "  await client.connect();",
    "",
    ...when(data !== undefined, `  await subscription.publish(utf8.encode(jsonEncode(${dartOf(data)})));`),
    ...when(presence, "  final presence = await subscription.presence();", "  print('present: ${presence.clients.keys}');"),
    ...when(
      historyLimit !== undefined,
      `  final history = await subscription.history(limit: ${historyLimit});`,
      "  for (final publication in history.publications) {",
      "    print('history ${publication.offset} ${utf8.decode(publication.data)}');", "  }",
    ),
    ...when(unsubscribe, "  await subscription.unsubscribe();"),
    "}",
  ];
}

/** A value as Dart writes it: JSON, in which `$` has no meaning. @param {unknown} value */
const dartOf = (value) => jsonOf(value).replaceAll("$", "\\$");

/** @param {Done} done */
function curl({ apiUrl, apiKey, channel, data, presence, historyLimit, unsubscribe }) {
  const request = (/** @type {string} */ method, /** @type {Record<string, unknown>} */ body) => [
    `curl --header ${shellOf(`X-API-Key: ${apiKey}`)} \\`,
    `  --json ${shellOf(jsonOf(body))} ${shellOf(`${apiUrl}/${method}`)}`,
    "",
  ];
  const commands = [
    ...(data !== undefined ? request("publish", { channel, data }) : []),
    ...(presence ? request("presence", { channel }) : []),
    ...(historyLimit !== undefined ? request("history", { channel, limit: historyLimit }) : []),
    ...(unsubscribe ? request("channels", {}) : []),
  ];
  return commands.length > 0 ? commands : request("info", {});
}

/** A word of a shell. @param {string} text */
const shellOf = (text) => (/^[\w:/.-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
