//go:build linux

package churn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// standing is how many files stand still in the directory that Listing lists.
const standing = 3000

// Listing is the command listing. It lists a directory in several ways while others write in it, and counts what each way leaves out
// or gives twice of the files that stand still. How a bare loop fares depends on the file system; fileproc may do neither.
func Listing(ctx context.Context, args []string) error {
	flags := trial.NewFlags("listing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return flags.Temp(func(dir string) error { return listing(ctx, flags, dir) })
}

func listing(ctx context.Context, flags *trial.Flags, dir string) error {
	var names []string
	for i := range standing {
		names = append(names, fmt.Sprint("s", i))
	}
	if err := trial.Write(dir, func(string) []byte { return nil }, names...); err != nil {
		return err
	}
	bare := func(size int) func(seen map[string]int) error {
		return func(seen map[string]int) error { return listBare(dir, size, seen) }
	}
	ways := []struct {
		name              string
		list              func(seen map[string]int) error
		runs, twice, lost int
	}{
		{name: "getdents64, 4 KiB", list: bare(4 << 10)},
		{name: "getdents64, 64 KiB", list: bare(64 << 10)},
		{name: "getdents64, 1 MiB", list: bare(1 << 20)},
		{name: "fileproc.Walk", list: func(seen map[string]int) error {
			for f, err := range fileproc.Walk(ctx, dir, fileproc.Options{}) {
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
	changes := atomic.Int64{}
	change := func(_ *rand.Rand, w, k int) error {
		changes.Add(1)
		return changeBeside(filepath.Join(dir, fmt.Sprintf("w%d.", w)), k)
	}
	err := flags.Against(ctx, math.MaxInt, 3, change, func(*rand.Rand, int, sync.Locker) (any, error) {
		for i := range ways {
			w := &ways[i]
			w.runs++
			seen := map[string]int{}
			if err := w.list(seen); err != nil {
				return w.name, err
			}
			for _, name := range names {
				switch n := seen[name]; {
				case n == 0:
					w.lost++
				case n > 1:
					w.twice++
				}
			}
		}
		return nil, nil
	})
	fmt.Printf("%d files that stand still, %d changes beside them\n", standing, changes.Load())
	for _, w := range ways {
		fmt.Printf("%s: %d listings; left out: %d, twice: %d\n", w.name, w.runs, w.lost, w.twice)
		if strings.HasPrefix(w.name, "fileproc") && w.lost+w.twice > 0 {
			err = errors.Join(err, errors.New("fileproc has lost files, or given them twice"))
		}
	}
	return err
}

// changeBeside makes the change with number i: it creates a file, renames every third, and removes one that is older.
func changeBeside(prefix string, i int) error {
	name := func(i int) string {
		if i%3 == 0 {
			return fmt.Sprint(prefix, i, "r")
		}
		return fmt.Sprint(prefix, i)
	}
	err := os.WriteFile(fmt.Sprint(prefix, i), nil, 0o600)
	if err == nil && i%3 == 0 {
		err = os.Rename(fmt.Sprint(prefix, i), name(i))
	}
	if err == nil && i >= 50 {
		err = os.Remove(name(i - 50))
	}
	return err
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
