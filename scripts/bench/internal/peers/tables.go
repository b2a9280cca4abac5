package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/fileproc/fileproc"
)

type table struct {
	sides  func(set) ([]side, error)
	before func() error
}

var tables = map[string]table{
	"peers":    {sides: peerSides},
	"programs": {sides: programSides},
	"backends": {sides: backendSides},
	"sizes":    {sides: sizeSides},
	"workers":  {sides: workerSides},
	"cold":     {sides: cacheSides, before: dropCaches},
	"warm":     {sides: cacheSides},
	"ablation": {sides: ablationSides},
	"readdir":  {sides: readDirSides},
}

var build string

func backendSides(s set) ([]side, error) {
	return []side{s.files(build, "", fileprocWith(fileproc.Options{}))}, nil
}

// readDirSides returns sides that list one directory, with and without the size and time of every file. Readdir always asks
// for them.
func readDirSides(s set) (sides []side, err error) {
	add := func(who string, bytes int64, list func(dir string) (tally, error)) {
		sides = append(sides, side{who: who, want: &tally{int64(s.Files), bytes}, changing: s.dir == proc,
			call: func() (tally, error) { return list(s.dir) }})
	}
	add("fileproc.ReadDir", 0, func(dir string) (tally, error) { return entries(fileproc.ReadDir(dir)) })
	add("os.ReadDir", 0, func(dir string) (tally, error) { return entries(os.ReadDir(dir)) })
	add("fileproc.ReadDir + Info", s.Bytes, func(dir string) (tally, error) { return infos(fileproc.ReadDir(dir)) })
	add("os.ReadDir + Info", s.Bytes, func(dir string) (tally, error) { return infos(os.ReadDir(dir)) })
	add("Readdir", s.Bytes, readdir)
	return sides, nil
}

func entries(list []fs.DirEntry, err error) (tally, error) {
	return tally{files: int64(len(list))}, err
}

func infos(list []fs.DirEntry, err error) (t tally, _ error) {
	for _, e := range list {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return t, err
		}
		t.files++
		t.bytes += info.Size()
	}
	return t, err
}

func readdir(dir string) (t tally, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return t, err
	}
	defer f.Close()
	list, err := f.Readdir(-1)
	for _, info := range list {
		t.files++
		t.bytes += info.Size()
	}
	return t, err
}

func sizeSides(s set) ([]side, error) {
	loop := func(dir string, c *counter) error {
		return list(dir, func(path string) bool { return c.readFile(path) == nil })
	}
	return []side{
		s.files("fileproc", "", fileprocWith(fileproc.Options{})),
		s.files("ReadDir + ReadFile", runtime.Version(), loop),
		s.files("charlievieth/fastwalk", version("github.com/charlievieth/fastwalk"), fastWalk),
	}, nil
}

const maxWorkers = 8

func workerSides(s set) (sides []side, err error) {
	for n := 1; n <= maxWorkers; n++ {
		sides = append(sides,
			s.files(fmt.Sprintf("fileproc/%d", n), "", fileprocWith(fileproc.Options{Workers: n})),
			s.files(fmt.Sprintf("ReadDir + goroutine pool/%d", n), runtime.Version(), poolOf(n)))
	}
	return sides, nil
}

func cacheSides(s set) ([]side, error) {
	return []side{
		s.files("fileproc", "", fileprocWith(fileproc.Options{})),
		s.files("fileproc, 32 workers", "", fileprocWith(fileproc.Options{Workers: 32})),
		s.files("WalkDir + ReadFile", runtime.Version(), walkDir),
		s.files("ReadDir + goroutine pool", runtime.Version(), poolOf(runtime.GOMAXPROCS(0))),
		s.files("ReadDir + goroutine pool of 32", runtime.Version(), poolOf(32)),
	}, nil
}

// dropCaches empties the page, dentry and inode caches.
func dropCaches() error {
	if err := exec.Command("sync").Run(); err != nil { // dirty pages cannot be dropped
		return err
	}
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		return fmt.Errorf("dropping the caches needs Linux and root: %w", err)
	}
	return nil
}

// ablationSides returns sides that each change one thing in the first side. All find the same files; they read different
// amounts.
func ablationSides(s set) (sides []side, err error) {
	add := func(who string, opts fileproc.Options, run func(fileproc.Options) error) {
		sides = append(sides, side{who: who, want: &tally{files: int64(s.Files)}, call: func() (tally, error) {
			var report fileproc.Report
			opts := opts
			opts.Report = &report
			err := run(opts)
			return tally{files: report.Found}, err
		}})
	}
	null := func(opts fileproc.Options) error {
		return process(s.dir, opts, func(*fileproc.File) struct{} { return struct{}{} })
	}

	add("whole files, empty callback, nothing kept", fileproc.Options{}, null)
	add("callback returns an int, kept", fileproc.Options{}, func(opts fileproc.Options) error {
		return process(s.dir, opts, func(f *fileproc.File) int { return len(f.Data()) })
	})
	add("callback returns Rel, kept", fileproc.Options{}, func(opts fileproc.Options) error {
		return process(s.dir, opts, (*fileproc.File).Rel)
	})
	add("callback returns Path, kept", fileproc.Options{}, func(opts fileproc.Options) error {
		return process(s.dir, opts, (*fileproc.File).Path)
	})
	add("callback returns ErrSkip", fileproc.Options{}, func(opts fileproc.Options) error {
		_, err := fileproc.Process(context.Background(), s.dir, opts, func(*fileproc.File) (struct{}, error) {
			return struct{}{}, fileproc.ErrSkip
		})
		return err
	})
	add("Stream in place of Process", fileproc.Options{}, func(opts fileproc.Options) error {
		for _, err := range fileproc.Stream(context.Background(), s.dir, opts, func(*fileproc.File) (struct{}, error) {
			return struct{}{}, nil
		}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	add("Suffixes, all fit", fileproc.Options{Suffixes: []string{".txt", ".md"}}, null)
	add("Suffixes, none fits", fileproc.Options{Suffixes: []string{".txt"}}, null)
	add("SkipHidden", fileproc.Options{SkipHidden: true}, null)
	add("Include, all fit", fileproc.Options{Include: []string{"**/*.md"}}, null)
	add("Exclude, none fits", fileproc.Options{Exclude: []string{"**/*.txt"}}, null)
	add("SkipBinary", fileproc.Options{SkipBinary: true}, null)
	add("Select, always true", fileproc.Options{Select: func(*fileproc.File) bool { return true }}, null)
	add("DisableURing", fileproc.Options{DisableURing: true}, null)
	add("Stat", fileproc.Options{Stat: true}, null)
	add("ReadSize 2,048", fileproc.Options{ReadSize: 2048}, null)
	add("NoRead", fileproc.Options{ReadSize: fileproc.NoRead}, null)
	add("NoRead and Stat", fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, null)
	return sides, nil
}

func process[T any](dir string, opts fileproc.Options, fn func(*fileproc.File) T) error {
	_, err := fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (T, error) { return fn(f), nil })
	return err
}

// countProgram is the path of the command count.
var countProgram string

const needle = "status: open"

func programSides(s set) ([]side, error) {
	if countProgram == "" {
		return nil, errors.New("-count must name the built command count")
	}
	sides := []side{
		program("count, with fileproc", countProgram, nil, needle, s.dir),
		program("ripgrep", "rg", []string{"--version"}, "--no-config", "-uuu", "-F", "-c", needle, s.dir),
		program("grep", "grep", []string{"--version"}, "-rFc", needle, s.dir),
	}
	return sides, nil
}

// program returns a side that runs a whole program, whose output is lines of path:count.
func program(who, path string, askVersion []string, args ...string) side {
	s := side{who: who}
	if _, err := exec.LookPath(path); err != nil {
		s.missing = "the program is not installed"
		return s
	}
	if askVersion != nil {
		text, _ := exec.Command(path, askVersion...).Output()
		line, _, _ := bytes.Cut(text, []byte("\n"))
		s.version = string(line)
	}
	s.call = func() (t tally, err error) {
		cmd := exec.Command(path, args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C") // grep is slower in other locales
		out, err := cmd.Output()
		if err != nil {
			return t, err
		}
		for line := range bytes.Lines(out) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			n, err := strconv.ParseInt(string(line[bytes.LastIndexByte(line, ':')+1:]), 10, 64)
			if err != nil {
				return t, fmt.Errorf("its output is not path:count: %q", line)
			}
			if n > 0 { // grep also lists files without a match
				t.files++
				t.bytes += n
			}
		}
		return t, nil
	}
	return s
}
