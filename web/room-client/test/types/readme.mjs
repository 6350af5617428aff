// Writes the examples of README.md, each as a module, for the type check: `node readme.mjs FOLDER`. An example with an ellipsis is a fragment.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';

/** The names that the examples use from the application and from the first example. */
const GIVEN = `import type { Place } from "../../../dist/index.js";
declare function fetchToken(): Promise<string>;
declare function draw(id: number, place: Place | null): void;
`;
const FROM_FIRST = `import { Room } from "../../../dist/index.js";
import { ProtobufCentrifuge } from "../../../dist/protobuf_centrifuge.js";
declare const centrifuge: ProtobufCentrifuge;
`;

const folder = process.argv[2];
const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const examples = [...readme.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, code]) => code).filter((code) => !code.includes('\u2026'));
if (examples.length < 3) throw new Error(`README.md has ${examples.length} whole examples`);
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
for (const [at, example] of examples.entries()) {
  const code = example.replace('"@dunlin/room-client/protobuf"', '"../../../dist/protobuf_centrifuge.js"').replace('"@dunlin/room-client"', '"../../../dist/index.js"');
  writeFileSync(`${folder}/example${at}.ts`, `${GIVEN}${example.includes('@dunlin/room-client') ? '' : FROM_FIRST}${code}export {};\n`);
}
