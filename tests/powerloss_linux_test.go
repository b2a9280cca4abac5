package fileproc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/replace"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A disk is an image of a file system, which is mounted. What the kernel keeps in memory is not in the image: a copy of it is what
// a loss of power would leave.
type disk struct {
	t                  *testing.T
	image, at, options string

	mu       sync.Mutex
	reported []string // files
	copies   []copyOfDisk
}

// A copyOfDisk is of one moment.
type copyOfDisk struct {
	moment, image string
	reported      int // files that were reported before
}

// mount mounts an image until unmount, or until the test ends.
func mount(t *testing.T, image, options string) (at string, unmount func(), err error) {
	at = t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop"+options, image, at).CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("%w: %s", err, out)
	}
	unmount = sync.OnceFunc(func() { require.NoError(t, exec.Command("umount", at).Run()) })
	t.Cleanup(unmount)
	return at, unmount, nil
}

// format makes a file system.
func format(t *testing.T, image string, size int64, command string) {
	mkfs := strings.Fields(command)
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		t.Skip("left out: no mkfs of this file system: ", err)
	}
	require.NoError(t, os.WriteFile(image, nil, 0o644))
	require.NoError(t, os.Truncate(image, size))
	out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// copy copies the image as it is. That takes no moment only if the image itself is on a file system whose files can share blocks:
// writes wait for such a copy. Others are copied when nothing is written.
func (d *disk) copy(moment string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := fmt.Sprint(d.image, "-", len(d.copies))
	from, err := os.Open(d.image)
	require.NoError(d.t, err)
	defer from.Close()
	to, err := os.Create(name)
	require.NoError(d.t, err)
	defer to.Close()
	require.NoError(d.t, unix.IoctlFileClone(int(to.Fd()), int(from.Fd())))
	d.copies = append(d.copies, copyOfDisk{moment, name, len(d.reported)})
}

func (d *disk) report(rel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reported = append(d.reported, rel)
}

// writeJournal makes what the run has renamed so far durable where a sync of one file does that for all files: on ext4 and xfs.
func (d *disk) writeJournal() {
	f, err := os.CreateTemp(d.at, "journal")
	require.NoError(d.t, err)
	require.NoError(d.t, errors.Join(f.Sync(), f.Close()))
}

const (
	lossFiles   = 1200
	lossContent = 5000 // bytes: more than a file system keeps beside a name
)

func lossOf(rel, what string) string { return what + rel + strings.Repeat(".", lossContent) }

// check mounts each copy. Each file must have the old content or the new one, and the new one if it was reported before.
func (d *disk) check(files map[string]string) {
	mixed := 0
	for _, c := range d.copies {
		at, unmount, err := mount(d.t, c.image, d.options)
		require.NoError(d.t, err, c.moment)
		now := contents(d.t, filepath.Join(at, "root"))
		isNew := 0
		for rel, old := range files {
			if now[rel] == lossOf(rel, "new") {
				isNew++
			} else if now[rel] != old {
				d.t.Fatalf("%s: %s has %d bytes: %.20q", c.moment, rel, len(now[rel]), now[rel])
			}
		}
		for _, rel := range d.reported[:c.reported] {
			require.True(d.t, now[rel] == lossOf(rel, "new"), "%s: %s was reported", c.moment, rel)
		}
		if isNew > 0 && isNew < len(files) {
			mixed++
		}
		if c.moment == "end" {
			require.Len(d.t, now, len(files), "nothing else is left")
		}
		unmount()
		require.NoError(d.t, os.Remove(c.image))
	}
	d.t.Logf("%d copies, of which %d have old and new files", len(d.copies), mixed)
}

// TestInvariant11PowerLoss: with Options.Durable, what a run has reported is on the disk, and each file is whole after a loss of
// power at any moment.
func TestInvariant11PowerLoss(t *testing.T) {
	outer := filepath.Join(memoryDir(t), "outer")
	format(t, outer, 2<<30, "mkfs.xfs -q -f") // its files can share blocks
	dir, _, err := mount(t, outer, "")
	if err != nil {
		t.Skip("nothing can be mounted here: ", err)
	}
	defer func() { replace.AfterPrepare = func() {} }()
	for name, fs := range map[string]struct {
		mkfs    string
		size    int64
		options string
	}{"ext4": {"mkfs.ext4 -q -F", 64 << 20, ""}, "xfs": {"mkfs.xfs -q -f", 320 << 20, ""}, "btrfs": {"mkfs.btrfs -q -f", 160 << 20, ""}} {
		for how, run := range map[string]func(*disk, string){"groups": (*disk).runGroups, "alone": (*disk).runAlone} {
			t.Run(name+", "+how, func(t *testing.T) {
				d := &disk{t: t, image: filepath.Join(dir, name+" "+how), options: fs.options}
				format(t, d.image, fs.size, fs.mkfs)
				at, unmount, err := mount(t, d.image, d.options)
				require.NoError(t, err)
				d.at = at
				root, files := filepath.Join(at, "root"), map[string]string{}
				for i := range lossFiles {
					rel := fmt.Sprintf("d%d/f%d", i%7, i)
					files[rel] = lossOf(rel, "old")
				}
				write(t, root, files)
				unix.Sync()
				run(d, root)
				d.copy("end")
				replace.AfterPrepare = func() {}
				unmount()
				d.check(files)
			})
		}
	}
}

// at calls do in the n-th call of what it returns, for each n. Callbacks of several workers may call it.
func at(do func(n int), ns ...int) func() {
	var mu sync.Mutex
	calls := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		calls++
		for _, n := range ns {
			if n == calls {
				do(n)
			}
		}
	}
}

func replaceForLoss(f *fileproc.File) (string, error) {
	return f.Rel(), f.Replace([]byte(lossOf(f.Rel(), "new")))
}

// runGroups copies while files wait, and while they get their names.
func (d *disk) runGroups(root string) {
	waiting := at(func(n int) { d.writeJournal(); d.copy(fmt.Sprint("call ", n)) }, 2, 300, 1100)
	replace.AfterPrepare = at(func(n int) { d.writeJournal(); d.copy(fmt.Sprint("rename ", n)) }, 1, 400, 1000, lossFiles)
	rels, err := fileproc.Process(d.t.Context(), root, fileproc.Options{Durable: true, Workers: 2}, func(f *fileproc.File) (string, error) {
		waiting()
		return replaceForLoss(f)
	})
	require.NoError(d.t, err)
	require.Len(d.t, rels, lossFiles)
	d.reported = rels
}

// runAlone copies between results. It replaces a fraction of the files, each of which is synced.
func (d *disk) runAlone(root string) {
	n := 0
	for rel, err := range fileproc.Stream(d.t.Context(), root, fileproc.Options{Durable: true, Workers: 2, Include: []string{"d1/f*7"}}, replaceForLoss) {
		require.NoError(d.t, err)
		d.report(rel)
		if n++; n%5 == 1 {
			d.copy(fmt.Sprint("result ", n))
		}
	}
}
