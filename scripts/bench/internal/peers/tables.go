//go:build linux

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
	"github.com/fileproc/fileproc/scripts/bench/internal/readers"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

func backendSides(s *set) ([]turns.Side, error) {
	return []turns.Side{s.fileproc(s.build, fileproc.Options{})}, nil
}

// readDirSides returns sides that list one directory, with and without the size and time of every file. Readdir always asks
// for them.
func readDirSides(s *set) ([]turns.Side, error) {
	return []turns.Side{
		s.side("fileproc.ReadDir", "", s.files, 0, readers.Entries(fileproc.ReadDir, s.dir)),
		s.side("os.ReadDir", "", s.files, 0, readers.Entries(os.ReadDir, s.dir)),
		s.reader("fileproc.ReadDir + Info", "", infos(fileproc.ReadDir, s.dir)),
		s.reader("os.ReadDir + Info", "", infos(os.ReadDir, s.dir)),
		s.reader("Readdir", "", func() (files int, bytes int64, err error) {
			f, err := os.Open(s.dir)
			if err != nil {
				return 0, 0, err
			}
			defer f.Close()
			list, err := f.Readdir(-1)
			for _, info := range list {
				bytes += info.Size()
			}
			return len(list), bytes, err
		}),
	}, nil
}

func infos(list func(dir string) ([]fs.DirEntry, error), dir string) turns.Work {
	return func() (files int, bytes int64, err error) {
		entries, err := list(dir)
		for _, e := range entries {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return files, bytes, err
			}
			files++
			bytes += info.Size()
		}
		return files, bytes, err
	}
}

func sizeSides(s *set) ([]turns.Side, error) {
	return []turns.Side{
		s.fileproc("fileproc", fileproc.Options{}),
		s.reader("ReadDir + ReadFile", runtime.Version(), readers.ReadDir(s.dir)),
		s.peer("charlievieth/fastwalk", fastWalk),
	}, nil
}

func workerSides(s *set) (sides []turns.Side, err error) {
	const most = 8
	for n := 1; n <= most; n++ {
		sides = append(sides,
			s.fileproc(fmt.Sprintf("fileproc/%d", n), fileproc.Options{Workers: n}),
			s.reader(fmt.Sprintf("ReadDir + goroutine pool/%d", n), runtime.Version(), readers.Pool(n, s.dir)))
	}
	return sides, nil
}

// ablationSides returns sides that each change one thing in the first side. All find the same files; they read different
// amounts.
func ablationSides(s *set) (sides []turns.Side, err error) {
	for _, v := range []struct {
		who  string
		opts fileproc.Options
		run  func(fileproc.Options) error // nil: nothing is kept
	}{
		{who: "whole files, empty callback, nothing kept"},
		{who: "callback returns an int, kept", run: process(s, func(f *fileproc.File) (int, error) { return len(f.Data()), nil })},
		{who: "callback returns Rel, kept", run: process(s, func(f *fileproc.File) (string, error) { return f.Rel(), nil })},
		{who: "callback returns Path, kept", run: process(s, func(f *fileproc.File) (string, error) { return f.Path(), nil })},
		{who: "callback returns ErrSkip", run: process(s, func(*fileproc.File) (struct{}, error) { return struct{}{}, fileproc.ErrSkip })},
		{who: "Stream in place of Process", run: func(opts fileproc.Options) error {
			for _, err := range fileproc.Stream(s.ctx, s.dir, opts, nothing) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{who: "Suffixes, all fit", opts: fileproc.Options{Suffixes: []string{".txt", ".md"}}},
		{who: "Suffixes, none fits", opts: fileproc.Options{Suffixes: []string{".txt"}}},
		{who: "SkipHidden", opts: fileproc.Options{SkipHidden: true}},
		{who: "Include, all fit", opts: fileproc.Options{Include: []string{"**/*.md"}}},
		{who: "Exclude, none fits", opts: fileproc.Options{Exclude: []string{"**/*.txt"}}},
		{who: "SkipBinary", opts: fileproc.Options{SkipBinary: true}},
		{who: "Select, always true", opts: fileproc.Options{Select: func(*fileproc.File) bool { return true }}},
		{who: "DisableURing", opts: fileproc.Options{DisableURing: true}},
		{who: "Stat", opts: fileproc.Options{Stat: true}},
		{who: "ReadSize 2,048", opts: fileproc.Options{ReadSize: 2048}},
		{who: "NoRead", opts: fileproc.Options{ReadSize: fileproc.NoRead}},
		{who: "NoRead and Stat", opts: fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}},
	} {
		if v.run == nil {
			v.run = process(s, nothing)
		}
		sides = append(sides, s.side(v.who, "", s.files, 0, func() (int, int64, error) {
			var report fileproc.Report
			opts := v.opts
			opts.Report = &report
			err := v.run(opts)
			return int(report.Found), 0, err
		}))
	}
	return sides, nil
}

func nothing(*fileproc.File) (struct{}, error) { return struct{}{}, nil }

func process[T any](s *set, fn func(*fileproc.File) (T, error)) func(fileproc.Options) error {
	return func(opts fileproc.Options) error {
		_, err := fileproc.Process(s.ctx, s.dir, opts, fn)
		return err
	}
}

// programSides returns sides that count the lines with a fixed string. Right is what the first side counts.
func programSides(s *set) ([]turns.Side, error) {
	const needle = "status: open"
	if s.count == "" {
		return nil, errors.New("-count must name the built command count")
	}
	files, lines, err := counted(s.ctx, s.count, needle, s.dir)
	if err != nil {
		return nil, err
	}
	side := func(who string, askVersion []string, program string, args ...string) turns.Side {
		if _, err := exec.LookPath(program); err != nil {
			return turns.Side{Name: who, Missing: "the program is not installed"}
		}
		version := []byte(nil)
		if askVersion != nil {
			text, _ := exec.Command(program, askVersion...).Output()
			version, _, _ = bytes.Cut(text, []byte("\n"))
		}
		return s.side(who, string(version), files, lines, func() (int, int64, error) {
			return counted(s.ctx, program, append(args, needle, s.dir)...)
		})
	}
	return []turns.Side{
		side("count, with fileproc", nil, s.count),
		side("ripgrep", []string{"--version"}, "rg", "--no-config", "-uuu", "-F", "-c"),
		side("grep", []string{"--version"}, "grep", "-rFc"),
	}, nil
}

// counted runs a whole program, whose output is lines of path:count, and returns the number of files with a match and the sum.
func counted(ctx context.Context, program string, args ...string) (files int, lines int64, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // grep is slower in other locales
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(out) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		n, err := strconv.ParseInt(string(line[bytes.LastIndexByte(line, ':')+1:]), 10, 64)
		if err != nil {
			return files, lines, fmt.Errorf("its output is not path:count: %q", line)
		}
		if n > 0 { // grep also lists files without a match
			files++
			lines += n
		}
	}
	return files, lines, nil
}
