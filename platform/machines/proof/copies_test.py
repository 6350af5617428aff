#!/usr/bin/python3
"""Copies of snapshots in a store that is a folder: what is copied, kept, restored and refused. Needs restic, and no machine."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

PROGRAM = Path(__file__).resolve().parents[1] / "roles/k3s/files/k3s-snapshot-copies"
# An empty repository whose password costs restic no time.
REPOSITORY = Path(__file__).resolve().parents[2] / "backup/testdata/repository"
PASSWORD = "c4n4ry-restic-password\n"
FIRST_S = 1_700_000_000
STEP_S = 21_600
KEEP = 3


class Copies(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.work = Path(temporary.name)
        self.snapshots = self.work / "snapshots"
        self.snapshots.mkdir()
        self.metrics = self.work / "copies.prom"
        self.store = self.work / "store"
        shutil.copytree(REPOSITORY, self.store)
        for folder in ["data", "index", "locks", "snapshots"]:
            (self.store / folder).mkdir()
        (self.work / "repository").write_text(f"{self.store}\n", "utf-8")
        (self.work / "password").write_text(PASSWORD, "utf-8")
        (self.work / "credentials").touch()
        self.set_keep(KEEP)

    def set_keep(self, keep):
        settings = {"keep": keep, "age_max_s": 43200, "metrics": str(self.metrics), "snapshots": str(self.snapshots)}
        (self.work / "settings.json").write_text(json.dumps(settings), "utf-8")

    def take(self, number, name=None):
        path = self.snapshots / (name or f"etcd-snapshot-server1-{number}")
        path.write_bytes(os.urandom(5_000))
        os.utime(path, (FIRST_S + number * STEP_S,) * 2)
        return path

    def does(self, *arguments):
        return subprocess.run(
            [PROGRAM, *arguments], capture_output=True, text=True, check=False, env=os.environ | {"K3S_COPIES_SETTINGS": str(self.work)}
        )

    def succeeds(self, *arguments):
        done = self.does(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fails(self, sentence, *arguments):
        done = self.does(*arguments)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(sentence, done.stderr)

    def names(self):
        return [line.split()[-1] for line in self.succeeds("list").splitlines()]

    def copied_s(self):
        return int(re.search(r"^k3s_snapshot_copied_timestamp_seconds (\d+)$", self.metrics.read_text("utf-8"), re.MULTILINE)[1])

    def test_each_snapshot_is_copied_once_to_a_new_store(self):
        shutil.rmtree(self.store)
        paths = [self.take(number) for number in range(KEEP)]
        self.take(9, "etcd-snapshot-server1-9.part")
        self.assertEqual(self.succeeds("copy").count("copied "), KEEP)
        self.assertEqual(self.names(), [path.name for path in paths])
        self.assertEqual(self.copied_s(), FIRST_S + (KEEP - 1) * STEP_S)
        self.assertEqual(self.metrics.stat().st_mode & 0o777, 0o644)
        self.assertEqual(self.succeeds("copy"), "")

    def test_one_more_than_is_kept_removes_the_oldest(self):
        paths = [self.take(number) for number in range(KEEP)]
        self.succeeds("copy")
        paths.append(self.take(KEEP))
        self.succeeds("copy")
        self.assertEqual(self.names(), [path.name for path in paths[1:]])
        # The oldest is on the disk still, and is not copied again.
        self.assertEqual(self.succeeds("copy"), "")

    def test_zero_keeps_all(self):
        self.set_keep(0)
        for number in range(KEEP + 1):
            self.take(number)
        self.succeeds("copy")
        self.assertEqual(len(self.names()), KEEP + 1)

    def test_a_copy_is_restored_without_the_snapshots(self):
        paths = [self.take(number) for number in range(2)]
        contents = {"latest": paths[1].read_bytes(), paths[0].name: paths[0].read_bytes()}
        self.succeeds("copy")
        for path in paths:
            path.unlink()
        target = self.work / "restored"
        target.touch(0o644)
        for name, content in contents.items():
            self.succeeds("restore", name, str(target))
            self.assertEqual(target.read_bytes(), content)
            self.assertEqual(target.stat().st_mode & 0o777, 0o600)
        self.fails("the store has no copy other", "restore", "other", str(target))

    def test_failures_leave_the_time_of_the_last_copy(self):
        self.take(0)
        self.succeeds("copy")
        self.take(1)
        (self.work / "password").write_text("another-password-of-someone\n", "utf-8")
        self.fails("wrong password", "copy")
        (self.work / "password").write_text(PASSWORD, "utf-8")
        (self.work / "repository").write_text("rest:http://127.0.0.1:1/\n", "utf-8")
        self.fails("connection refused", "copy")
        self.assertEqual(self.copied_s(), FIRST_S)

    def test_a_damaged_copy_is_not_restored(self):
        self.take(0)
        self.succeeds("copy")
        for pack in (self.store / "data").rglob("*"):
            if pack.is_file():
                content = bytearray(pack.read_bytes())
                content[10] ^= 1
                pack.chmod(0o600)
                pack.write_bytes(content)
        target = self.work / "restored"
        self.fails("restic dump", "restore", "latest", str(target))
        self.assertEqual(list(self.work.glob("restored*")), [])

    def fails_with(self, cases, sentence):
        """Copies with a restic that has other answers to some of its commands."""
        programs = self.work / "programs"
        programs.mkdir(exist_ok=True)
        fake = programs / "restic"
        fake.write_text(f'#!/bin/sh\ncase $2 in {cases} *) exec {shutil.which("restic")} "$@" ;; esac\n', "utf-8")
        fake.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": f"{programs}:{os.environ['PATH']}"}):
            self.fails(sentence, "copy")
        self.assertFalse(self.metrics.exists())

    def test_a_copy_that_differs_does_not_count(self):
        path = self.take(0)
        self.fails_with("dump) echo other ;;", "differs from it, and was removed")
        self.assertEqual(self.names(), [])
        self.fails_with("dump) echo other ;; forget) echo only adds >&2; exit 1 ;;", "cannot be removed: do not restore it. restic forget: only adds")
        self.assertEqual(self.names(), [path.name])

    def test_a_copy_that_differed_is_copied_again(self):
        path = self.take(0)
        self.fails_with("dump) echo other ;;", "the next run copies it again")
        self.assertEqual(self.succeeds("copy"), f"copied {path.name}\n")


if __name__ == "__main__":
    unittest.main()
