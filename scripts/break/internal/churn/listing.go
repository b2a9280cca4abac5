//go:build linux

package churn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
	"golang.org/x/sys/unix"
)

// Listing is the command listing. It lists a directory in several ways while others write in it, and counts what each way leaves out
// or gives twice of 3,000 files that stand still. How a bare loop fares depends on the file system; fileproc may do neither.
func Listing(ctx context.Context, args []string) error {
	flags := trial.NewFlags("listing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return flags.Temp(func(dir string) error {
		var names []string
		for i := range 3000 {
			names = append(names, fmt.Sprint("s", i))
		}
		if err := trial.Write(dir, func(string) []byte { return nil }, names...); err != nil {
			return err
		}
		change := func(_ *rand.Rand, w, k int) (string, error) {
			return "beside the files", changeBeside(filepath.Join(dir, fmt.Sprintf("w%d.", w)), k)
		}
		return flags.Against(ctx, math.MaxInt, 3, change, func(*rand.Rand, int, sync.Locker) (any, error) {
			for _, way := range []string{"getdents64, 4 KiB", "getdents64, 64 KiB", "getdents64, 1024 KiB", "fileproc.Walk", "fileproc.ReadDir"} {
				seen, err := list(ctx, dir, way)
				if err != nil {
					return way, err
				}
				var lost, twice int64
				for _, name := range names {
					lost += int64(max(0, 1-seen[name]))
					twice += int64(max(0, seen[name]-1))
				}
				flags.Count(way+": listings", 1)
				flags.Count(way+": left out", lost)
				flags.Count(way+": twice", twice)
				if strings.HasPrefix(way, "fileproc") && lost+twice > 0 {
					return way, fmt.Errorf("%d files left out, %d twice", lost, twice)
				}
			}
			return nil, nil
		})
	})
}

// list returns how many times each name is in a listing.
func list(ctx context.Context, dir, way string) (map[string]int, error) {
	seen, size := map[string]int{}, 0
	switch way {
	case "fileproc.Walk":
		for f, err := range fileproc.Walk(ctx, dir, fileproc.Options{}) {
			if err != nil && !errors.Is(err, fileproc.ErrChanged) { // which is a writer's file of a type not listed
				return nil, err
			}
			seen[f.Name()]++
		}
		return seen, nil
	case "fileproc.ReadDir":
		entries, err := fileproc.ReadDir(dir)
		for _, e := range entries {
			seen[e.Name()]++
		}
		return seen, err
	}
	fmt.Sscanf(way, "getdents64, %d", &size)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for buf := make([]byte, size<<10); ; {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return seen, err
		}
		for records := buf[:n]; len(records) > 0; {
			var r dirent.Record
			if r, records, err = dirent.Next(records); err != nil {
				return nil, err
			}
			seen[string(r.Name)]++
		}
	}
}

// changeBeside makes the change with number i: it creates a file, renames every third, and removes one that is older.
func changeBeside(prefix string, i int) error {
	name := func(i int) string { return fmt.Sprint(prefix, i, []string{"r", "", ""}[i%3]) }
	created := fmt.Sprint(prefix, i)
	err := os.WriteFile(created, nil, 0o600)
	if err == nil && name(i) != created {
		err = os.Rename(created, name(i))
	}
	if err == nil && i >= 50 {
		err = os.Remove(name(i - 50))
	}
	return err
}
