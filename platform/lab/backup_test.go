package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// backupLines of a spec keep snapshots on a volume of the namespace.
	backupLines = `  backup:
    schedule: "15 3 * * *"
    repository: { claim: backups, file: backup.env }
`
	storeClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: backups, namespace: web }
spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } }
`
)

// openStore makes the volume for snapshots, and their key.
func (site *site) openStore() {
	site.t.Helper()
	command := kubectl("apply", "-f", "-")
	command.Stdin = strings.NewReader(storeClaim)
	site.must(command)
	site.write("apps/backup.env", "RESTIC_PASSWORD="+rand.Text()+"\n")
	site.roost(0, "secrets", "encrypt", "apps/backup.env")
}

// folderOf is the folder of the machine that a claim's volume is.
func (site *site) folderOf(claim string) string {
	site.t.Helper()
	volume := site.must(kubectl("-n", namespace, "get", "persistentvolumeclaim", claim, "-o", "jsonpath={.spec.volumeName}"))
	return filepath.Join(os.Getenv("ROOST_LAB"), "machine/var/lib/volumes", strings.TrimPrefix(volume, "local-"))
}

// saved is what was found of a backup with a verified restore.
type saved struct{ backup, drill time.Duration }

// backUp saves, and verifies a restore. Both are Jobs of the operator.
func (site *site) backUp(name string) saved {
	site.t.Helper()
	var took saved
	began := time.Now()
	site.roost(0, "backup", "-n", namespace, name)
	took.backup, began = time.Since(began), time.Now()
	site.roost(0, "drill", "-n", namespace, name)
	took.drill = time.Since(began)
	site.wait("the backup counts", func() bool { return site.state(name).is("BackupFresh") })
	found := site.state(name).Backup
	if found == nil || found.LastSnapshot == "" || found.VerifiedSnapshot != found.LastSnapshot || found.LastVerifiedRestore == nil {
		site.t.Errorf("%+v", found)
	}
	return took
}

// restore is refused without --replace, and returns how long it took with it.
func (site *site) restore(name string) time.Duration {
	site.t.Helper()
	began := time.Now()
	if _, words := site.roostWords(1, "restore", "-n", namespace, name); !strings.Contains(words, "--replace") {
		site.t.Errorf("%q", words)
	}
	site.figure("a restore without --replace is refused after %.1f s", time.Since(began).Seconds())
	// Another try would find the same, while the pods are stopped.
	labels := "apps.roost.dev/app=" + name + ",apps.roost.dev/task=restore"
	if tries := strings.Fields(site.must(kubectl("-n", namespace, "get", "pods", "-l", labels, "-o", "name"))); len(tries) > 1 {
		site.t.Errorf("%v", tries)
	}
	began = time.Now()
	out := site.roost(0, "restore", "-n", namespace, name, "--replace")
	took := time.Since(began)
	if !strings.Contains(out, site.state(name).Backup.LastSnapshot) || !strings.Contains(out, "is lost") {
		site.t.Errorf("%q", out)
	}
	return took
}

// file reads or writes a file of the app's volume, through the ingress controller.
func (app *app) file(method, name string, content []byte) (int, []byte) {
	app.t.Helper()
	ctx, cancel := context.WithTimeout(app.t.Context(), requestSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+ingressAddress+"/files/"+name, bytes.NewReader(content))
	if err != nil {
		app.t.Fatal(err)
	}
	request.Host, request.Close = app.host(), true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	found, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, found
}

// compare has each file byte for byte, and none beside them.
func (app *app) compare(content map[string][]byte, missing string) {
	app.t.Helper()
	for name, bytesBefore := range content {
		if status, found := app.file(http.MethodGet, name, nil); status != http.StatusOK || !bytes.Equal(found, bytesBefore) {
			app.t.Errorf("%s: status %d, %d bytes, expected %d", name, status, len(found), len(bytesBefore))
		}
	}
	if status, _ := app.file(http.MethodGet, missing, nil); status != http.StatusNotFound {
		app.t.Errorf("%s: status %d", missing, status)
	}
}

// newFiles has an app that serves the files of its volume.
func newFiles(t *testing.T) *app {
	t.Helper()
	app := newApp(t, "files", "  env: { FILES: /data }\n  volumes: [{ name: data, path: /data, size: 1Gi }]\n"+backupLines)
	app.openStore()
	app.release("1.4.2", "info", "token", "")
	app.deploy()
	app.waitUntilServing("1.4.2")
	return app
}

func (app *app) put(name string, content []byte) {
	app.t.Helper()
	if status, _ := app.file(http.MethodPut, name, content); status != http.StatusOK {
		app.t.Fatalf("%s: status %d", name, status)
	}
}

// fill writes files of random bytes.
func (app *app) fill(files int) map[string][]byte {
	app.t.Helper()
	const bytesEach = 100_000
	content := map[string][]byte{}
	for number := range files {
		name, text := fmt.Sprintf("file%d", number), make([]byte, bytesEach+number)
		if _, err := rand.Read(text); err != nil {
			app.t.Fatal(err)
		}
		content[name] = text
		app.put(name, text)
	}
	return content
}

// The files of an app are saved to a volume of the namespace, verified, and replaced by a restore.
func TestFilesAreRestored(t *testing.T) {
	const files = 40
	site := newSite(t)
	t.Cleanup(func() { site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait")) })
	app := newFiles(t)
	content := app.fill(files)
	took := app.backUp(app.name)
	app.figure("%d files with %d bytes are saved by Jobs after %.1f s, and a restore of them is verified after %.1f s more",
		files, app.state(app.name).Backup.Bytes, took.backup.Seconds(), took.drill.Seconds())
	for _, name := range []string{"file0", "later"} {
		app.put(name, []byte("written after the backup"))
	}
	restored := app.restore(app.name)
	app.waitUntilServing("1.4.2")
	app.compare(content, "later")
	app.figure("`roost restore --replace` takes %.1f s; %d files are as they were saved, byte for byte", restored.Seconds(), files)
	app.losePack()
	app.roost(1, "drill", "-n", namespace, app.name)
	app.wait("the drill counts as failed", func() bool {
		return strings.HasPrefix(app.state(app.name).message("BackupFresh"), "RestoreFailed: ")
	})
	app.figure("a store that has lost a pack: %s", app.state(app.name).message("BackupFresh"))
}

// A store has lost a pack. A restore fails at its first try, and the volume stays as it is.
func TestADamagedStoreLeavesTheVolume(t *testing.T) {
	site := newSite(t)
	t.Cleanup(func() { site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait")) })
	app := newFiles(t)
	content := app.fill(4)
	app.roost(0, "backup", "-n", namespace, app.name)
	app.losePack()
	content["file0"] = content["file1"]
	app.put("file0", content["file0"])
	began := time.Now()
	app.roost(1, "restore", "-n", namespace, app.name, "--replace")
	app.figure("the restore has failed after %.0f s", time.Since(began).Seconds())
	app.waitUntilServing("1.4.2")
	app.compare(content, "later")
}

// losePack removes the largest pack of the app's repository.
func (app *app) losePack() {
	app.t.Helper()
	folder := filepath.Join(app.folderOf("backups"), namespace, app.name, "data")
	largest, size := "", int64(0)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	})
	if err != nil || largest == "" {
		app.t.Fatalf("no pack in %s: %v", folder, err)
	}
	if err := os.Remove(largest); err != nil {
		app.t.Fatal(err)
	}
}

const databaseManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: database, namespace: web }
spec:
  image: registry.example.com/postgresql:15
  ports: [{ port: 5432 }]
  health: { command: [pg_isready, --host=127.0.0.1, --quiet] }
  env: { PGDATA: /data/database, PGUSER: shop }
  envFiles: [database.env]
  volumes: [{ name: data, path: /data, size: 1Gi }]
  network:
    to: [{ app: database, ports: [5432] }]
    from: [{ app: database }]
  backup:
    schedule: "15 3 * * *"
    repository: { claim: backups, file: backup.env }
    command: [pg_dump, --host=database, --format=custom, --file=/backup/dump/shop, shop]
    restoreCommand: [pg_restore, --host=$(ROOST_RESTORE_HOST), --exit-on-error, --single-transaction, --clean, --if-exists, --dbname=shop]
`

// query asks the database in its pod.
func (site *site) query(text string) string {
	site.t.Helper()
	return strings.TrimSpace(site.must(kubectl("-n", namespace, "exec", "database-0", "--",
		"psql", "--host=127.0.0.1", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--command="+text, "shop")))
}

// A dump of PostgreSQL is saved, loaded into a copy of the app by a drill, and into the app by a restore.
func TestADumpOfPostgreSQLIsRestored(t *testing.T) {
	const (
		rows     = 10_000
		allRows  = `SELECT count(*), md5(string_agg(t::text, E'\n' ORDER BY id)) FROM tickers t`
		makeRows = `CREATE TABLE tickers (id integer PRIMARY KEY, name text NOT NULL UNIQUE, price numeric NOT NULL);
			INSERT INTO tickers SELECT number, md5(number::text), number / 7.0 FROM generate_series(1, 10000) number`
	)
	site := newSite(t)
	site.install()
	t.Cleanup(func() {
		site.must(kubectl("-n", namespace, "delete", "app", "database", "--ignore-not-found", "--wait"))
		site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait"))
	})
	site.openStore()
	site.write("apps/database.yaml", databaseManifest)
	site.write("apps/database.env", "PGPASSWORD="+rand.Text()+"\n")
	site.roost(0, "secrets", "encrypt", "apps/database.env")
	site.roost(0, "deploy", "apps/database.yaml")
	site.query(makeRows)
	before := site.query(allRows)
	if !strings.HasPrefix(before, fmt.Sprint(rows)) {
		t.Fatal(before)
	}
	took := site.backUp("database")
	site.figure("a dump of %d rows is saved after %.1f s, and has been loaded into a copy of the app after %.1f s more", rows, took.backup.Seconds(), took.drill.Seconds())

	site.query("DELETE FROM tickers WHERE id > 100; CREATE TABLE later (id integer)")
	changed := site.query(allRows)
	site.roost(0, "drill", "-n", namespace, "database")
	if found := site.query(allRows); found != changed {
		t.Errorf("a drill has changed the database: %s, then %s", changed, found)
	}
	pods := site.uids("database")
	restored := site.restore("database")
	if found := site.query(allRows); found != before {
		t.Errorf("%s before, %s after", before, found)
	}
	if after := site.uids("database"); after["database-0"] != pods["database-0"] {
		t.Errorf("pods %v, then %v", pods, after)
	}
	site.figure("the dump is loaded again after %.1f s, while the server runs: %s", restored.Seconds(), before)
}

// publication is one of a history.
type publication struct {
	Offset uint64
	Data   json.RawMessage
}

// history is the answer of a node.
type history struct {
	Publications []publication
	Epoch        string
	Offset       uint64
}

// call asks a node at its internal port, and is empty if it does not answer.
func (site *site) call(path, body string) []byte {
	site.t.Helper()
	var service corev1.Service
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: namespace, Name: "realtime-internal"}, &service); err != nil {
		site.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(site.t.Context(), requestSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+service.Spec.ClusterIP+":9000"+path, strings.NewReader(body))
	if err != nil {
		site.t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("X-API-Key", apiKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	return text
}

func (site *site) publish(channel, number int) {
	site.t.Helper()
	body := fmt.Sprintf(`{"channel":"drain:%d","data":{"number":%d},"idempotency_key":"%d"}`, channel, number, number)
	site.wait("a publication is taken", func() bool {
		text := site.call("/api/publish", body)
		return bytes.Contains(text, []byte(`"offset"`)) && !bytes.Contains(text, []byte(`"error"`))
	})
}

// histories of all channels, when a node has answered for each.
func (site *site) histories(channels int) []history {
	site.t.Helper()
	var found []history
	for channel := range channels {
		var answer struct{ Result *history }
		site.wait("a node tells the history", func() bool {
			text := site.call("/api/history", fmt.Sprintf(`{"channel":"drain:%d","limit":-1}`, channel))
			return json.Unmarshal(text, &answer) == nil && answer.Result != nil
		})
		found = append(found, *answer.Result)
	}
	return found
}

// compareHistories has the same publications at the same offsets, in another epoch.
func (site *site) compareHistories(before, after []history) {
	site.t.Helper()
	for channel := range before {
		isSame := slices.EqualFunc(before[channel].Publications, after[channel].Publications, func(one, other publication) bool {
			return one.Offset == other.Offset && bytes.Equal(one.Data, other.Data)
		})
		if !isSame || len(before[channel].Publications) == 0 || before[channel].Epoch == after[channel].Epoch {
			site.t.Errorf("channel %d: %d publications of epoch %s before, %d of epoch %s after", channel,
				len(before[channel].Publications), before[channel].Epoch, len(after[channel].Publications), after[channel].Epoch)
		}
	}
}

// losesPositions saves, restores, and checks what clients and histories see of it. Prepare is called before the backup.
func (site *site) losesPositions(prepare func()) {
	const sessions, channels, kept, lost = 20, 4, 200, 40
	t := site.t
	t.Helper()
	crowd := site.startClients(sessions, channels)
	site.wait("the clients are connected", func() bool { return crowd.report().Connected == sessions })
	number := 0
	publish := func(count int) {
		for range count {
			site.publish(number%channels, number)
			number++
		}
	}
	publish(kept)
	before := site.histories(channels)
	prepare()
	took := site.backUp("realtime")
	site.figure("a backup of %d publications is made after %.1f s, and a restore of it is verified after %.1f s more: %s",
		kept, took.backup.Seconds(), took.drill.Seconds(), site.state("realtime").Backup.Operation.Message)
	publish(lost)
	site.wait("all clients have the last publications", func() bool { return crowd.report().Next >= number })
	restored := site.restore("realtime")
	took.drill = site.wait("the clients are connected again", func() bool {
		found := crowd.report()
		return found.Connected == sessions && found.Unrecovered >= sessions
	})
	after := site.histories(channels)
	site.compareHistories(before, after)
	publish(channels)
	site.wait("all clients have the next publications", func() bool { return crowd.report().Next >= number })
	crowd.end()
	found := crowd.report()
	if found.Unrecovered != sessions || found.Missing+found.Late+found.Doubled+len(found.Gone) != 0 {
		t.Errorf("%+v", found)
	}
	site.figure("`roost restore --replace` takes %.1f s, and %.1f s later all %d clients are back: %d were told that their position is lost; %d publications are as they were saved",
		restored.Seconds(), took.drill.Seconds(), sessions, found.Unrecovered, kept)
}

// The streams of three NATS servers are saved, verified and restored, with a new epoch.
func TestStreamsAreRestored(t *testing.T) {
	site := newDunlin(t)
	site.openStore()
	site.deployDunlin(fmt.Sprintf(realtimeManifest, "", "  nodes: 2\n"+natsLine(t, 3)+backupLines), "nats_password=letters\n")
	site.losesPositions(func() {})
}

// The storage of a node is saved, verified and restored, with a new epoch.
func TestAStorageIsRestored(t *testing.T) {
	site := newDunlin(t)
	site.openStore()
	site.deployDunlin(fmt.Sprintf(realtimeManifest, ", durability: disk", "  storage: { size: 1Gi }\n"+backupLines), "")
	site.losesPositions(func() {
		// Otherwise the node makes the next one in an hour.
		site.wait("the node has made a backup", func() bool { return site.call("/-/backup", "") != nil })
	})
}

const lostVolume = `apiVersion: v1
kind: PersistentVolume
metadata: { name: lost }
spec:
  storageClassName: local
  capacity: { storage: 20Gi }
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Delete
  claimRef: { namespace: web, name: data-realtime-nats-1 }
  local: { path: /var/lib/volumes/lost }
  nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/hostname, operator: In, values: [lost] }] }] } }
`

// A NATS server whose volume is on a machine that does not exist gets an empty volume, and copies the streams from the others. The cluster
// has one machine, so the volume of the lost one is written by the test.
func TestANATSServerIsReplaced(t *testing.T) {
	const channels, kept = 4, 100
	site := newDunlin(t)
	t.Cleanup(func() { site.must(kubectl("delete", "persistentvolume", "lost", "--ignore-not-found", "--wait")) })
	site.deployDunlin(fmt.Sprintf(realtimeManifest, "", "  nodes: 2\n"+natsLine(t, 3)), "nats_password=letters\n")
	for number := range kept {
		site.publish(number%channels, number)
	}
	if _, words := site.roostWords(3, "replace-nats", "-n", namespace, "realtime", "realtime-nats-1"); !strings.Contains(words, "is ready") {
		t.Errorf("%q", words)
	}
	command := kubectl("create", "-f", "-")
	command.Stdin = strings.NewReader(lostVolume)
	site.must(command)
	site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaim", "data-realtime-nats-1", "--wait=false"))
	site.must(kubectl("-n", namespace, "delete", "pod", "realtime-nats-1", "--wait"))
	site.wait("the loss is reported", func() bool {
		message := site.state("realtime").message("Degraded")
		return strings.HasPrefix(message, "NodeLost: ") && strings.Contains(message, "realtime-nats-1")
	})
	site.figure("reported: %s", site.state("realtime").message("Degraded"))
	for number := kept; number < 2*kept; number++ {
		site.publish(number%channels, number)
	}
	before := site.histories(channels)
	began := time.Now()
	out := site.roost(0, "replace-nats", "-n", namespace, "realtime", "realtime-nats-1")
	site.figure("after %.0f s: %s", time.Since(began).Seconds(), strings.TrimSpace(out))
	if policy := site.must(kubectl("get", "persistentvolume", "lost", "-o", "jsonpath={.spec.persistentVolumeReclaimPolicy}")); policy != "Retain" {
		t.Errorf("the volume of the lost machine has the policy %s", policy)
	}
	site.wait("all is well", func() bool {
		state := site.state("realtime")
		return state.is("Ready") && !state.is("Degraded") && !state.is("Progressing")
	})
	// The new server is one of the two that are left, so it has what it acknowledges.
	site.must(kubectl("-n", namespace, "delete", "pod", "realtime-nats-0", "--wait"))
	for number := 2 * kept; number < 2*kept+channels; number++ {
		site.publish(number%channels, number)
	}
	after := site.histories(channels)
	for channel := range before {
		if want := len(before[channel].Publications) + 1; len(after[channel].Publications) != want || after[channel].Epoch != before[channel].Epoch {
			t.Errorf("channel %d: %d publications of epoch %s, expected %d of %s", channel, len(after[channel].Publications), after[channel].Epoch, want, before[channel].Epoch)
		}
	}
}
