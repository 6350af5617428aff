package backup

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// The fake restic writes its last entry only after the first one was read.
func TestALongListIsReadWhileItIsWritten(t *testing.T) {
	folder := t.TempDir()
	site := &site{t: t}
	site.write(filepath.Join(folder, KeyPassword), password)
	program, read := filepath.Join(folder, "restic"), filepath.Join(folder, "read")
	site.write(program, `#!/bin/sh
echo '{"struct_type":"snapshot"}'
echo '{"struct_type":"node","path":"/volumes/data/first","size":1}'
while [ ! -e `+read+` ]; do sleep 0.01; done
echo '{"struct_type":"node","path":"/volumes/data/last","size":2}'
[ -z "$FAILS" ] || { echo 'Fatal: no more' >&2; exit 1; }
`)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	repository := &Repository{URL: "/srv/none", Secrets: folder, Program: program}
	var names []string
	each := func(name string, _ saved) {
		if names = append(names, name); len(names) == 1 {
			site.write(read, "")
		}
	}
	if err := repository.listEach(ctx, Snapshot{}, each); err != nil || len(names) != 2 || names[1] != "volumes/data/last" {
		t.Errorf("%q, %v", names, err)
	}
	site.write(filepath.Join(folder, "FAILS"), "1")
	repository.secrets = nil
	site.fails(Report{}, repository.listEach(ctx, Snapshot{}, each))("restic ls: exit status 1: Fatal: no more")
	site.write(program, "#!/bin/sh\necho 'no JSON'; yes\n")
	site.fails(Report{}, repository.listEach(ctx, Snapshot{}, each))("restic ls")
}
