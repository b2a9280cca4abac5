//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/dirent"
	"golang.org/x/sys/unix"
)

// standing is how many files stand still in the directory that listing lists.
const standing = 3000

// Listing lists a directory in several ways while others write in it, and counts what each way leaves out or gives twice of the
// files that stand still. How a bare loop fares depends on the file system; fileproc may do neither.
func Listing(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("listing", flag.ContinueOnError)
	duration := flags.Duration("for", 10*time.Second, "how long to run")
	parent := flags.String("dir", "", "parent of the directory (default: the temporary directory)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(*parent, "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range standing {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("s", i)), nil, 0o600); err != nil {
			return err
		}
	}
	var (
		writers sync.WaitGroup
		changes atomic.Int64
		failed  atomic.Pointer[error]
		stop    atomic.Bool
	)
	for w := range 3 {
		writers.Go(func() {
			if err := writeBeside(dir, w, &changes, &stop); err != nil {
				failed.Store(&err)
			}
		})
	}
	defer writers.Wait()
	defer stop.Store(true)

	ways := []struct {
		name              string
		list              func(seen map[string]int) error
		runs, twice, lost int
	}{
		{name: "getdents64, 4 KiB", list: func(seen map[string]int) error { return listBare(dir, 4<<10, seen) }},
		{name: "getdents64, 64 KiB", list: func(seen map[string]int) error { return listBare(dir, 64<<10, seen) }},
		{name: "getdents64, 1 MiB", list: func(seen map[string]int) error { return listBare(dir, 1<<20, seen) }},
		{name: "fileproc.Walk", list: func(seen map[string]int) error {
			for f, err := range fileproc.Walk(context.Background(), dir, fileproc.Options{}) {
				if err != nil && !errors.Is(err, fileproc.ErrChanged) { // which is a writer's file of a type not listed
					return err
				}
				seen[f.Name()]++
			}
			return nil
		}},
		{name: "fileproc.ReadDir", list: func(seen map[string]int) error {
			entries, err := fileproc.ReadDir(dir)
			for _, e := range entries {
				seen[e.Name()]++
			}
			return err
		}},
	}
	for end := time.Now().Add(*duration); ways[0].runs == 0 || time.Now().Before(end); {
		for i := range ways {
			seen := map[string]int{}
			if err := ways[i].list(seen); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			ways[i].runs++
			for k := range standing {
				switch n := seen[fmt.Sprint("s", k)]; {
				case n == 0:
					ways[i].lost++
				case n > 1:
					ways[i].twice++
				}
			}
		}
	}
	fmt.Printf("%d files that stand still, %d changes beside them\n", standing, changes.Load())
	for _, w := range ways {
		fmt.Printf("%s: %d listings; left out: %d, twice: %d\n", w.name, w.runs, w.lost, w.twice)
		if strings.HasPrefix(w.name, "fileproc") && w.lost+w.twice > 0 {
			err = errors.New("fileproc has lost files, or given them twice")
		}
	}
	if failure := failed.Load(); failure != nil {
		return *failure
	}
	return err
}

// writeBeside creates, renames and removes files in dir until stop is set.
func writeBeside(dir string, w int, changes *atomic.Int64, stop *atomic.Bool) error {
	const most = 50
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("w%d.%d", w, i)) }
	for i := 0; !stop.Load(); i++ {
		if err := os.WriteFile(name(i), nil, 0o600); err != nil {
			return err
		}
		changes.Add(1)
		if i%3 == 0 && i > 0 {
			if err := os.Rename(name(i), name(i)+"r"); err != nil {
				return err
			}
			changes.Add(1)
		}
		if i >= most {
			old := name(i - most)
			if (i-most)%3 == 0 && i > most {
				old += "r"
			}
			if err := os.Remove(old); err != nil {
				return err
			}
			changes.Add(1)
		}
	}
	return nil
}

// listBare lists dir as a program does that calls the kernel itself, size bytes at a time.
func listBare(dir string, size int, seen map[string]int) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	for buf := make([]byte, size); ; {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return os.NewSyscallError("getdents64", err)
		}
		for records := buf[:n]; len(records) > 0; {
			var r dirent.Record
			if r, records, err = dirent.Next(records); err != nil {
				return err
			}
			seen[string(r.Name)]++
		}
	}
}
