package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

const snapshotsFolder = serverFolder + "/db/snapshots"

// saveSnapshot needs a running server.
func saveSnapshot(arguments []string) error {
	if len(arguments) != 3 || arguments[0] != "save" || arguments[1] != "--name" {
		return errors.New("the stand-in knows `etcd-snapshot save --name NAME` only")
	}
	if err := os.MkdirAll(snapshotsFolder, 0o700); err != nil {
		return err
	}
	config, _, err := readConfig("server")
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s/%s-%s-%d", snapshotsFolder, arguments[2], config.NodeName, time.Now().Unix())
	if _, err := output("", "etcdctl", "--endpoints="+etcdClients, "snapshot", "save", path); err != nil {
		return err
	}
	fmt.Printf("level=info msg=\"Snapshot %s saved.\"\n", path)
	return remember("snapshot saved")
}

// reset replaces the datastore with a snapshot. The server must not run. The token must be that of the time of the snapshot.
func reset(arguments []string) error {
	if len(arguments) != 2 || arguments[0] != "--cluster-reset" {
		return errors.New("the stand-in knows `server --cluster-reset --cluster-reset-restore-path=FILE` only")
	}
	path, isRestore := cutFlag(arguments[1], "--cluster-reset-restore-path=")
	if !isRestore {
		return fmt.Errorf("flag provided but not defined: %s", arguments[1])
	}
	if isServing() {
		return errors.New("k3s runs; stop it before its datastore is reset")
	}
	_, token, err := readConfig("server")
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("etcd: snapshot path does not exist: %s", path)
	}
	aside := fmt.Sprintf("%s-old-%d", etcdFolder, time.Now().Unix())
	if err := os.Rename(etcdFolder, aside); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.MkdirAll(serverFolder+"/db", 0o700); err != nil {
		return err
	}
	_, err = output("", "etcdctl", "snapshot", "restore", path, "--data-dir="+etcdFolder, "--name=default",
		"--initial-cluster=default="+etcdPeers, "--initial-advertise-peer-urls="+etcdPeers)
	if err == nil {
		err = checkRestored(token)
	}
	// As with k3s, the previous datastore stays moved aside if the snapshot is not restored.
	if err != nil {
		return err
	}
	fmt.Println("level=info msg=\"Managed etcd cluster membership has been reset, restart without --cluster-reset flag now.\"")
	return remember("datastore restored")
}

func cutFlag(word, flag string) (string, bool) {
	if len(word) <= len(flag) || word[:len(flag)] != flag {
		return "", false
	}
	return word[len(flag):], true
}

// checkRestored checks that the token decrypts the bootstrap data of the snapshot.
func checkRestored(token string) error {
	parts := newParts()
	if err := startEtcd(parts); err != nil {
		return err
	}
	_, err := loadBootstrap(token)
	return err
}
