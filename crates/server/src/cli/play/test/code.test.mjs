/** The programs that the page writes. `tests/sdk/play` runs them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LANGUAGES, codeOf } from "../page/code.js";

const NOTHING = {
  url: "wss://example.com/connection/websocket", apiUrl: "https://example.com/api", apiKey: "YOUR_API_KEY", encoding: "json",
  hasToken: false, channel: undefined, data: undefined, presence: false, historyLimit: undefined, unsubscribe: false,
};
const ALL = { ...NOTHING, channel: "news", data: { text: "hello" }, presence: true, historyLimit: 7, unsubscribe: true };
const SDKS = Object.keys(LANGUAGES).filter((language) => language !== "curl");

test("a program has what was done, and nothing else", () => {
  for (const language of SDKS) {
    const [nothing, all] = [codeOf(language, NOTHING), codeOf(language, ALL)];
    assert.ok(nothing.includes("wss://example.com/connection/websocket"), language);
    assert.doesNotMatch(nothing, /undefined|subscri(be|ption)\(|presence|history|YOUR_TOKEN|\n{3}/i, language);
    for (const part of [/new_?subscription\(/i, /publish\(/i, /presence( \{|\()/i, /history\(/i, /unsubscribe\(/i, /\b7\b/]) {
      assert.match(all, part, language);
    }
    assert.doesNotMatch(all, /undefined|\n{3}/, language);
  }
});

test("every value of JSON can be published", () => {
  for (const data of [null, false, 0, "", [], {}]) {
    for (const language of SDKS) assert.match(codeOf(language, { ...ALL, data }), /publish\(/i, `${language}: ${data}`);
    assert.match(codeOf("curl", { ...ALL, data }), /api\/publish/);
  }
  assert.match(codeOf("python", { ...ALL, data: [true, null, { a: false }] }), /\[True, None, \{"a": False\}\]/);
});

test("a token is named, and never written", () => {
  for (const language of SDKS) assert.match(codeOf(language, { ...ALL, hasToken: true }), /YOUR_TOKEN/, language);
});

test("the encoding is that of the page, where an SDK has both", () => {
  const binary = { ...ALL, encoding: "protobuf" };
  assert.match(codeOf("javascript", binary), /"centrifuge\/build\/protobuf"/);
  assert.match(codeOf("go", binary), /NewProtobufClient/);
  assert.match(codeOf("python", binary), /use_protobuf=True/);
});

test("no text ends its quotes", () => {
  const data = { text: "it's $HOME ${x} `\"\\(y)\" \\ # \n </script>" };
  const written = JSON.stringify(data);
  assert.ok(codeOf("javascript", { ...ALL, data }).includes(`publish(${written})`));
  assert.ok(codeOf("go", { ...ALL, data }).includes(`[]byte(${JSON.stringify(written)})`), "no raw string: it has a backtick");
  assert.ok(codeOf("go", ALL).includes('[]byte(`{"text":"hello"}`)'));
  assert.ok(codeOf("java", { ...ALL, data }).includes(JSON.stringify(written)));
  assert.ok(codeOf("swift", { ...ALL, data }).includes(`Data(#"${written}"#.utf8)`));
  assert.ok(codeOf("swift", { ...ALL, data: '"##' }).includes(String.raw`Data(###""\"##""###.utf8)`));
  assert.ok(codeOf("dart", { ...ALL, data }).includes("\\$HOME \\${x}"));
  assert.ok(codeOf("curl", { ...ALL, data }).includes(`'${JSON.stringify({ channel: "news", data }).replaceAll("'", "'\\''")}'`));
  assert.ok(codeOf("curl", NOTHING).includes("https://example.com/api/info"));
});
