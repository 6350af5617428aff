// Prints a row for each text: what each reader makes of it, or null if it refuses it or complains.
const { mkdtempSync, readFileSync, writeFileSync } = require('node:fs')
const { spawnSync } = require('node:child_process')
const { join } = require('node:path')
const dotenv = require('dotenv')

const folder = mkdtempSync(join(process.cwd(), 'bash-'))

function compose (text) {
  const { status, stdout } = spawnSync('./compose', { input: text })
  return status === 0 ? JSON.parse(stdout) : null
}

function bash (text) {
  writeFileSync(join(folder, 'file.env'), text)
  const script = 'set -a; . ./file.env; /usr/bin/env -0 > environment'
  const { status, stdout, stderr } = spawnSync('bash', ['--norc', '--noprofile', '-c', script], {
    cwd: folder, env: { PATH: '/usr/bin:/bin', LC_ALL: 'C.UTF-8', HOME: '/home' }
  })
  if (status !== 0 || stdout.length > 0 || stderr.length > 0) return null
  const entries = readFileSync(join(folder, 'environment'), 'utf8').split('\0').filter(Boolean).map(entry => {
    const end = entry.indexOf('=')
    return [entry.slice(0, end), entry.slice(end + 1)]
  })
  const own = ['PATH', 'LC_ALL', 'HOME', 'PWD', 'OLDPWD', 'SHLVL', '_']
  return Object.fromEntries(entries.filter(([key]) => !own.includes(key)))
}

const rows = JSON.parse(readFileSync(process.argv[2], 'utf8')).map(text => JSON.stringify({
  text, dotenv: dotenv.parse(text), compose: compose(text), bash: bash(text)
}))
console.log(`[\n${rows.join(',\n')}\n]`)
