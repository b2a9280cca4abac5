package fileproc_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
)

// Most examples read tickets where they are, in memory (Options.FS), and some
// copy them to a directory first.
var tickets = fstest.MapFS{
	"2026-01/T-0001.md":      {Data: []byte("title: Export loses the last row\nstatus: open\n")},
	"2026-01/T-0002.md":      {Data: []byte("title: Dark mode\nstatus: closed\n")},
	"2026-02/T-0003.md":      {Data: []byte("title: Search is slow on large folders\nstatus: open\n")},
	"2026-02/.T-0003.md.swp": {Data: []byte("\x00\x01")},
	"README.md":              {Data: []byte("Tickets, one file each, by month.\n")},
}

// onDisk copies files to a new directory.
func onDisk(files fs.FS) (dir string) {
	dir, err := os.MkdirTemp("", "fileproc-")
	if err == nil {
		err = os.CopyFS(dir, files)
	}
	if err != nil {
		panic(err)
	}
	return dir
}

// title returns the text after "title: " in a ticket.
func title(content []byte) (string, bool) {
	for line := range bytes.Lines(content) {
		if t, ok := bytes.CutPrefix(line, []byte("title: ")); ok {
			return string(bytes.TrimSpace(t)), true
		}
	}
	return "", false
}

// The titles of all tickets below a directory.
func ExampleForEach() {
	dir := onDisk(tickets)
	defer os.RemoveAll(dir)

	var lines atomic.Int64 // fn runs on several goroutines at once
	err := fileproc.ForEach(context.Background(), dir, fileproc.Options{}, func(f *fileproc.File) error {
		lines.Add(int64(bytes.Count(f.Data(), []byte("\n"))))
		return nil
	})
	fmt.Println(lines.Load() > 0, err)
	// Output: true <nil>
}

func ExampleProcess() {
	dir := onDisk(tickets)
	defer os.RemoveAll(dir)

	ctx := context.Background()
	opts := fileproc.Options{Suffixes: []string{".md"}}
	titles, err := fileproc.Process(ctx, dir, opts, func(f *fileproc.File) (string, error) {
		t, ok := title(f.Data()) // Data is borrowed: title returns a copy
		if !ok {
			return "", fileproc.ErrSkip
		}
		return f.Name() + " " + t, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	slices.Sort(titles) // results come as files finish
	for _, t := range titles {
		fmt.Println(t)
	}
	// Output:
	// T-0001.md Export loses the last row
	// T-0002.md Dark mode
	// T-0003.md Search is slow on large folders
}

// Results as they come, for a directory whose results would not fit in memory.
func ExampleStream() {
	ctx := context.Background()
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}}
	open := 0
	for isOpen, err := range fileproc.Stream(ctx, ".", opts, func(f *fileproc.File) (bool, error) {
		return bytes.Contains(f.Data(), []byte("\nstatus: open\n")), nil
	}) {
		if err != nil {
			fmt.Println(err) // this file's; the others still come
			continue
		}
		if isOpen {
			open++
		}
	}
	fmt.Println(open, "tickets are open")
	// Output: 2 tickets are open
}

// Names and types alone; no file is opened.
func ExampleWalk() {
	var paths []string
	opts := fileproc.Options{FS: tickets, SkipHidden: true}
	for e, err := range fileproc.Walk(context.Background(), ".", opts) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		if e.IsDir() {
			paths = append(paths, e.Rel()+"/")
		} else {
			paths = append(paths, e.Rel())
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		fmt.Println(p)
	}
	// Output:
	// 2026-01/
	// 2026-01/T-0001.md
	// 2026-01/T-0002.md
	// 2026-02/
	// 2026-02/T-0003.md
	// README.md
}

// One directory, as os.ReadDir gives it but not sorted.
func ExampleReadDir() {
	dir := onDisk(tickets)
	defer os.RemoveAll(dir)

	entries, err := fileproc.ReadDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		fmt.Println(e)
	}
	// Output:
	// d 2026-01/
	// d 2026-02/
	// - README.md
}

func ExampleBackend() {
	fmt.Println(slices.Contains([]string{"linux", "unix", "generic"}, fileproc.Backend()))
	// Output: true
}

// rel is an fn that gives the paths of the files that were selected.
func rel(f *fileproc.File) (string, error) { return f.Rel(), nil }

// Suffixes are compared with names: a cheap first choice.
func ExampleOptions_suffixes() {
	fsys := fstest.MapFS{"go.mod": {}, "main.go": {}, "main.go.orig": {}, "web/app.ts": {}, "web/app.css": {}}
	opts := fileproc.Options{FS: fsys, Suffixes: []string{".go", ".ts"}, Ordered: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [main.go web/app.ts] <nil>
}

// Patterns are matched with the whole path; excluded directories are not opened.
func ExampleOptions_include() {
	fsys := fstest.MapFS{
		"README.md":              {},
		"docs/guide.md":          {},
		"docs/old/guide.md":      {},
		"docs/img/floor.svg":     {},
		"vendor/lib/docs/api.md": {},
	}
	opts := fileproc.Options{
		FS:      fsys,
		Include: []string{"*.md", "docs/**/*.{md,svg}"}, // "*.md" is in root alone
		Exclude: []string{"**/old"},
		Ordered: true,
	}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [README.md docs/guide.md docs/img/floor.svg] <nil>
}

// Names differ in case where programs or people have made them.
func ExampleOptions_ignoreCase() {
	fsys := fstest.MapFS{"DSC_0001.JPG": {}, "beach.jpg": {}, "Raw/DSC_0001.jpg": {}, "notes.txt": {}}
	opts := fileproc.Options{FS: fsys, Suffixes: []string{".jpg"}, Exclude: []string{"raw"}, IgnoreCase: true, Ordered: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [DSC_0001.JPG beach.jpg] <nil>
}

// Ignore files are read as git reads them, each for the directory that it is in.
func ExampleOptions_ignoreFiles() {
	fsys := fstest.MapFS{
		".gitignore":         {Data: []byte("*.log\n/build/\n")},
		"build/app":          {},
		"main.go":            {},
		"server.log":         {},
		"testdata/a.log":     {},
		"testdata/b.log":     {},
		"testdata/.ignore":   {Data: []byte("!a.log\n")},
		"testdata/build/gen": {},
	}
	opts := fileproc.Options{
		FS:          fsys,
		IgnoreFiles: []string{".gitignore", ".ignore"}, // the later counts more
		SkipHidden:  true,                              // the ignore files themselves; they are read all the same
		Ordered:     true,
	}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [main.go testdata/a.log testdata/build/gen] <nil>
}

// The files that git does not ignore, for a root anywhere in a repository.
func ExampleOptions_gitIgnore() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	if err := os.CopyFS(root, fstest.MapFS{
		".git/HEAD":     {},
		".git/objects":  {Mode: fs.ModeDir},
		".git/refs":     {Mode: fs.ModeDir},
		".gitignore":    {Data: []byte("*.log\n")},
		"main.go":       {},
		"lib/build.log": {},
		"lib/lib.go":    {},
	}); err != nil {
		panic(err)
	}
	opts := fileproc.Options{GitIgnore: true, Ordered: true}
	fmt.Println(fileproc.Process(context.Background(), root, opts, rel))
	// Output: [.gitignore lib/lib.go main.go] <nil>
}

// What git tracks, wherever the ignore files say otherwise.
func ExampleOptions_gitTracked() {
	zeros := strings.Repeat("\x00", 32)
	fsys := fstest.MapFS{
		".git/HEAD":    {},
		".git/objects": {Mode: fs.ModeDir},
		".git/refs":    {Mode: fs.ModeDir},
		// Version 2, with one entry: its metadata, its hash, and its name.
		".git/index": {Data: []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01" + zeros[:24] + "\x00\x00\x81\xa4" + zeros + "\x00\x07main.go\x00\x00\x00" + zeros[:20])},
		"main.go":    {},
		"notes.txt":  {},
	}
	opts := fileproc.Options{FS: fsys, GitTracked: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [main.go] <nil>
}

// SelectDir leaves out directories before they are opened: here those deeper than two levels.
func ExampleOptions_selectDir() {
	fsys := fstest.MapFS{"a.md": {}, "docs/b.md": {}, "docs/old/c.md": {}, "docs/old/older/d.md": {}}
	opts := fileproc.Options{
		FS:        fsys,
		SelectDir: func(e fileproc.Entry) bool { return strings.Count(e.Rel(), "/") < 2 },
		Ordered:   true,
	}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [a.md docs/b.md docs/old/c.md] <nil>
}

// Files names the files to process, in place of a listing.
func ExampleOptions_files() {
	fsys := fstest.MapFS{
		"go.mod": {}, "main.go": {}, "main_test.go": {},
		"docs/a.md": {}, "docs/b.md": {},
	}
	changed := strings.Lines("main.go\ngo.mod\ndocs/\n") // as git diff --name-only prints them
	opts := fileproc.Options{FS: fsys, Ordered: true, Files: func(yield func(string) bool) {
		for line := range changed {
			if !yield(strings.TrimSuffix(line, "\n")) {
				return
			}
		}
	}}
	for path, err := range fileproc.Stream(context.Background(), ".", opts, func(f *fileproc.File) (string, error) { return f.Rel(), nil }) {
		fmt.Println(path, err)
	}
	// Output:
	// main.go <nil>
	// go.mod <nil>
	// docs/a.md <nil>
	// docs/b.md <nil>
}

// The arguments of a command are processed in one run. Without any, it would be the directory ".".
func ExampleOptions_roots() {
	fsys := fstest.MapFS{"docs/a.md": {}, "docs/b.md": {}, "go.mod": {}, "notes/c.md": {}}
	opts := fileproc.Options{Roots: []string{"notes", "go.mod", "docs"}, FS: fsys, Ordered: true}
	for text, err := range fileproc.Stream(context.Background(), ".", opts, func(f *fileproc.File) (string, error) { return f.Root() + ": " + f.Rel(), nil }) {
		fmt.Println(text, err)
	}
	// Output:
	// notes: c.md <nil>
	// go.mod: go.mod <nil>
	// docs: a.md <nil>
	// docs: b.md <nil>
}

// SkipMarked leaves out directories that hold a marker file, as backup programs do.
func ExampleOptions_skipMarked() {
	fsys := fstest.MapFS{
		"notes.md": {}, "tmp/.nobackup": {}, "tmp/x": {}, "cache/0a/1f": {},
		"cache/CACHEDIR.TAG": {Data: []byte("Signature: 8a477f597d28d172789f06886806bc55")},
	}
	var report fileproc.Report
	opts := fileproc.Options{FS: fsys, SkipMarked: []string{"CACHEDIR.TAG", ".nobackup"}, Report: &report}
	names, err := fileproc.Process(context.Background(), ".", opts, rel)
	fmt.Println(names, err, report.Skipped[fileproc.SkippedMarked])
	// Output: [notes.md] <nil> 2
}

// SkipHidden leaves out names that begin with a dot, directories with their contents.
func ExampleOptions_skipHidden() {
	fsys := fstest.MapFS{".git/config": {}, ".env": {}, "src/.cache/x": {}, "src/main.go": {}}
	opts := fileproc.Options{FS: fsys, SkipHidden: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [src/main.go] <nil>
}

// SkipBinary leaves out files with a NUL byte near their beginning, as git and grep do.
func ExampleOptions_skipBinary() {
	fsys := fstest.MapFS{
		"logo.png": {Data: []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")},
		"todo.txt": {Data: []byte("write examples\n")},
	}
	var report fileproc.Report
	opts := fileproc.Options{FS: fsys, SkipBinary: true, Report: &report}
	names, err := fileproc.Process(context.Background(), ".", opts, rel)
	fmt.Println(names, err, report.Skipped[fileproc.SkippedBinary])
	// Output: [todo.txt] <nil> 1
}

// A file that a cloud keeps is skipped, since reading it would fetch it. Download asks for that.
func ExampleOptions_download() {
	fsys := fstest.MapFS{"todo.txt": {}}
	var report fileproc.Report
	opts := fileproc.Options{FS: fsys, Download: false, Report: &report}
	names, err := fileproc.Process(context.Background(), ".", opts, rel)
	fmt.Println(names, err, report.Skipped[fileproc.SkippedRemote])
	// Output: [todo.txt] <nil> 0
}

// OnSkip names what is left out, and why. SkipLarger leaves out large files.
func ExampleOptions_onSkip() {
	fsys := fstest.MapFS{
		"dump.json": {Data: make([]byte, 5000)},
		"todo.txt":  {Data: []byte("write examples\n")},
	}
	opts := fileproc.Options{FS: fsys, SkipLarger: 4096, OnSkip: func(e fileproc.Entry, why fileproc.SkipReason) {
		fmt.Printf("skipping %s: %s\n", e.Path(), why)
	}}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output:
	// skipping dump.json: larger
	// [todo.txt] <nil>
}

// A command handles the failures of its arguments in one place. WithResult keeps
// what was found before a failure.
func ExampleFailure() {
	fsys := fstest.MapFS{"a.txt": {Data: []byte("one\ntwo\n\x00three")}}
	opts := fileproc.Options{FS: fsys, OnError: func(err error) error {
		switch failure := err.(*fileproc.Failure); failure.Kind {
		case fileproc.FailedRoot:
			fmt.Println("no such argument:", failure.Path)
		case fileproc.FailedFunc:
			fmt.Println(failure.Path, "is odd:", failure.Err)
		default:
			return err
		}
		return nil
	}}
	for _, arg := range []string{"a.txt", "b.txt"} {
		lines, err := fileproc.Process(context.Background(), arg, opts, func(f *fileproc.File) (int, error) {
			text, _, odd := bytes.Cut(f.Data(), []byte{0})
			n := bytes.Count(text, []byte("\n"))
			if odd {
				return n, fileproc.WithResult(errors.New("it has a NUL byte"))
			}
			return n, nil
		})
		fmt.Println(lines, err)
	}
	// Output:
	// a.txt is odd: it has a NUL byte
	// [2] <nil>
	// no such argument: b.txt
	// [] <nil>
}

// Ordered sorts the results by path. The directory a comes before a-b, which is
// not so if paths are compared as strings.
func ExampleProcess_ordered() {
	fsys := fstest.MapFS{"a/2": {}, "a-b/1": {}, "a/1": {}, "b": {}}
	opts := fileproc.Options{FS: fsys, Ordered: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [a/1 a/2 a-b/1 b] <nil>
}

// Stream in order: each result comes as soon as all before it have, while files
// behind it are being read.
func ExampleStream_ordered() {
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}, Ordered: true}
	for line, err := range fileproc.Stream(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		return fmt.Sprintf("%s %d bytes", f.Rel(), len(f.Data())), nil
	}) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(line)
	}
	// Output:
	// 2026-01/T-0001.md 46 bytes
	// 2026-01/T-0002.md 32 bytes
	// 2026-02/T-0003.md 52 bytes
	// README.md 34 bytes
}

// Shard divides a job. The parts are usually done by different processes or
// machines; examples/shards in the repository is such a program.
func ExampleOptions_shard() {
	fsys := fstest.MapFS{}
	for i := range 1000 {
		fsys[fmt.Sprintf("T-%04d.md", i)] = &fstest.MapFile{}
	}
	const shards = 4
	seen := map[string]int{}
	for shard := range shards {
		names, err := fileproc.Process(context.Background(), ".", fileproc.Options{FS: fsys, Shard: shard, Shards: shards}, rel)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, name := range names {
			seen[name]++
		}
	}
	once := 0
	for _, n := range seen {
		if n == 1 {
			once++
		}
	}
	fmt.Println(once, "files, each in one shard")
	// Output: 1000 files, each in one shard
}

// OnProgress gets the Report about ten times a second, and once more when it is final.
func ExampleOptions_onProgress() {
	var last fileproc.Report
	opts := fileproc.Options{
		FS:         tickets,
		Suffixes:   []string{".md"},
		OnProgress: func(r fileproc.Report) { last = r }, // or fmt.Fprintf(os.Stderr, "\r%v", r)
	}
	if _, err := fileproc.Process(context.Background(), ".", opts, rel); err != nil {
		fmt.Println(err)
		return
	}
	last.Elapsed = 0 // to print the same each time
	fmt.Println(last)
	// Output: 4 files processed, 164 B read, 3 directories, 1 skipped (suffix 1), in 0s
}

// Select picks by size or age before a file is opened, as an incremental cache does.
func ExampleOptions_select() {
	opts := fileproc.Options{
		FS: tickets,
		Select: func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err != nil || s.Size > 50 // a file whose size is unknown is opened, and its error returned
		},
	}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [2026-02/T-0003.md] <nil>
}

// The beginning of each file is enough where only a header matters.
func ExampleOptions_readSize() {
	fsys := fstest.MapFS{"a.sh": {Data: []byte("#!/bin/sh\necho a\n")}, "b": {Data: []byte("#")}}
	opts := fileproc.Options{FS: fsys, ReadSize: 2, Ordered: true}
	marks, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		return fmt.Sprintf("%s %q, more: %t", f.Name(), f.Data(), f.Truncated()), nil
	})
	for _, m := range marks {
		fmt.Println(m)
	}
	fmt.Println(err)
	// Output:
	// a.sh "#!", more: true
	// b "#", more: false
	// <nil>
}

// MaxDepth 1 is root's own files, 2 also those of its subdirectories.
func ExampleOptions_maxDepth() {
	fsys := fstest.MapFS{"a": {}, "d/b": {}, "d/e/c": {}}
	opts := fileproc.Options{FS: fsys, MaxDepth: 2, Ordered: true}
	fmt.Println(fileproc.Process(context.Background(), ".", opts, rel))
	// Output: [a d/b] <nil>
}

// With NoRead no file is opened, and Data is nil: fn works with names, and here
// with the metadata that Stat fetches.
func ExampleOptions_readSize_noRead() {
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}, ReadSize: fileproc.NoRead, Stat: true}
	sizes, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (int64, error) {
		s, err := f.Stat()
		return s.Size, err
	})
	sum := int64(0)
	for _, size := range sizes {
		sum += size
	}
	fmt.Println(len(sizes), "files,", sum, "bytes", err)
	// Output: 4 files, 164 bytes <nil>
}

// Stat fetches size, time and mode with the handle that reads the content, so
// that they belong together.
func ExampleOptions_stat() {
	day := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	fsys := fstest.MapFS{"a.md": {Data: []byte("# Apples\n"), ModTime: day, Mode: 0o644}}
	opts := fileproc.Options{FS: fsys, Stat: true}
	notes, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		s, err := f.Stat()
		return fmt.Sprintf("%s %v %s %d: %s", f.Rel(), s.Mode, s.ModTime.Format(time.DateOnly), s.Size, f.Data()), err
	})
	fmt.Printf("%q %v\n", notes, err)
	// Output: ["a.md -rw-r--r-- 2026-03-01 9: # Apples\n"] <nil>
}

// OneFilesystem keeps out of file systems mounted below root, such as /proc below /.
// The Report counts each directory that was left out.
func ExampleOptions_oneFilesystem() {
	dir := onDisk(tickets)
	defer os.RemoveAll(dir)

	var report fileproc.Report
	opts := fileproc.Options{OneFilesystem: true, Report: &report, MaxDepth: 1}
	names, err := fileproc.Process(context.Background(), dir, opts, rel)
	fmt.Println(names, err, report.Skipped[fileproc.SkippedOtherFilesystem])
	// Output: [README.md] <nil> 0
}

// DisableURing is for systems where even an attempt to use io_uring raises an alarm. The
// Report counts the files that io_uring has read.
func ExampleOptions_disableURing() {
	dir := onDisk(tickets)
	defer os.RemoveAll(dir)

	var report fileproc.Report
	opts := fileproc.Options{DisableURing: true, Report: &report}
	names, err := fileproc.Process(context.Background(), dir, opts, rel)
	fmt.Println(len(names), "files,", report.URing, "with io_uring", err)
	// Output: 5 files, 0 with io_uring <nil>
}

// OnError sees each failure as it occurs, and decides whether the run goes on.
func ExampleOptions_onError() {
	tickets := fstest.MapFS{
		"1.md":      {Data: []byte("---\ntitle: Dark mode\n---\n")},
		"README.md": {Data: []byte("Tickets, one file each.\n")},
	}
	failures := 0
	opts := fileproc.Options{
		FS: tickets,
		OnError: func(err error) error {
			fmt.Println("left out:", err)
			if failures++; failures == 10 {
				return errors.New("too many failures")
			}
			return nil
		},
	}
	errNoTitle := errors.New("no title")
	titles, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		t, ok := title(f.Data())
		if !ok {
			return "", errNoTitle
		}
		return t, nil
	})
	fmt.Println(titles, err)
	// Output:
	// left out: process README.md: no title
	// [Dark mode] <nil>
}

// OnError may log each failure and go on. A Failure says what has failed, and
// errors.Is finds its cause.
func ExampleOptions_onError_slog() {
	config := fstest.MapFS{
		"core.json": {Data: []byte(`{"debug": true}`)},
		"dump.json": {Data: make([]byte, 2<<20)},
		"web.json":  {Data: []byte(`{"debug": false}`)},
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // to print the same each time
			}
			return a
		},
	}))
	opts := fileproc.Options{
		FS:          config,
		MaxFileSize: 1 << 20,
		Ordered:     true,
		OnError: func(err error) error {
			failure := err.(*fileproc.Failure)
			log.Warn("file left out", "path", failure.Path, "op", failure.Op, "too large", errors.Is(err, fileproc.ErrTooLarge))
			return nil // go on
		},
	}
	debug, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (bool, error) {
		var c struct{ Debug bool }
		err := json.Unmarshal(f.Data(), &c)
		return c.Debug, err
	})
	fmt.Println(debug, err)
	// Output:
	// level=WARN msg="file left out" path=dump.json op=read "too large"=true
	// [true false] <nil>
}

// A zip file, unpacked on all cores.
func ExampleOptions_fS_zip() {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range []string{"2025/a.txt", "2026/b.txt"} {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte("content of " + name))
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}

	r, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	opts := fileproc.Options{FS: r, Ordered: true}
	texts, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		return string(f.Data()), nil
	})
	fmt.Printf("%q %v\n", texts, err)
	// Output: ["content of 2025/a.txt" "content of 2026/b.txt"] <nil>
}

// An fs.FS is read in place of the operating system's files: an embed.FS, a
// zip.Reader, os.Root's FS, or as here a map in memory.
func ExampleOptions_fS() {
	fsys := fstest.MapFS{
		"notes/a.md":     {Data: []byte("# Apples\n")},
		"notes/old/b.md": {Data: []byte("# Pears\n")},
	}
	headings, err := fileproc.Process(context.Background(), "notes", fileproc.Options{FS: fsys}, func(f *fileproc.File) (string, error) {
		return f.Path() + ": " + string(bytes.Trim(f.Data(), "# \n")), nil
	})
	slices.Sort(headings)
	fmt.Println(headings, err)
	// Output: [notes/a.md: Apples notes/old/b.md: Pears] <nil>
}

// The ledger says what became of every file that was found.
func ExampleReport() {
	var report fileproc.Report
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}, Report: &report}
	if _, err := fileproc.Process(context.Background(), ".", opts, rel); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("directories:", report.Directories)
	fmt.Println("found:", report.Found)
	fmt.Println("processed:", report.Processed)
	for _, reason := range slices.Sorted(maps.Keys(report.Skipped)) {
		fmt.Printf("skipped (%s): %d\n", reason, report.Skipped[reason])
	}
	// Output:
	// directories: 3
	// found: 5
	// processed: 4
	// skipped (suffix): 1
}

// A search stops the run when it has found its file; that is no error.
func ExampleProcess_skipAll() {
	var found atomic.Pointer[string] // fn runs on several goroutines
	_, err := fileproc.Process(context.Background(), ".", fileproc.Options{FS: tickets}, func(f *fileproc.File) (struct{}, error) {
		if !bytes.Contains(f.Data(), []byte("status: closed")) {
			return struct{}{}, fileproc.ErrSkip
		}
		rel := f.Rel() // the strings of a File may be kept
		found.Store(&rel)
		return struct{}{}, fs.SkipAll
	})
	if err != nil || found.Load() == nil {
		fmt.Println("not found:", err)
		return
	}
	fmt.Println(*found.Load())
	// Output: 2026-01/T-0002.md
}

// ErrSkip leaves a file out: it gives neither a result nor an error.
func ExampleProcess_errSkip() {
	drafts := fstest.MapFS{
		"a.md": {Data: []byte("draft: true\n")},
		"b.md": {Data: []byte("draft: false\n")},
	}
	done, err := fileproc.Process(context.Background(), ".", fileproc.Options{FS: drafts}, func(f *fileproc.File) (string, error) {
		if bytes.HasPrefix(f.Data(), []byte("draft: true")) {
			return "", fileproc.ErrSkip
		}
		return f.Name(), nil
	})
	fmt.Println(done, err)
	// Output: [b.md] <nil>
}

// Worker numbers the goroutines that run fn, so that each can have state of its own without a lock.
func ExampleFile_Worker() {
	const workers = 4
	var words [workers]map[string]int
	opts := fileproc.Options{FS: tickets, Workers: workers}
	_, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (struct{}, error) {
		mine := words[f.Worker()]
		if mine == nil {
			mine = map[string]int{}
			words[f.Worker()] = mine
		}
		for word := range bytes.FieldsSeq(f.Data()) {
			mine[string(word)]++
		}
		return struct{}{}, nil
	})
	n := 0
	for _, m := range words {
		n += m["status:"]
	}
	fmt.Println(n, err)
	// Output: 3 <nil>
}

// A function is tested with files that need not exist, and applied to standard input.
func ExampleNewFile() {
	title := func(f *fileproc.File) (string, error) {
		title, _, found := bytes.Cut(f.Data(), []byte("\n"))
		if !found {
			return "", fmt.Errorf("%s has no title", f.Name())
		}
		return string(title), nil
	}
	fmt.Println(title(fileproc.NewFile("2026-01/T-0001.md", []byte("Dark mode\nstatus: open\n"))))
	fmt.Println(title(fileproc.NewFile("T-0002.md", nil)))
	// Output:
	// Dark mode <nil>
	//  T-0002.md has no title
}

// Reader reads a file that is too large to be held in memory, and needs no memory for it.
func ExampleFile_Reader() {
	dir := onDisk(fstest.MapFS{
		"large.log": {Data: bytes.Repeat([]byte("one of many lines\n"), 10_000)},
		"small.log": {Data: []byte("a line\n")},
	})
	defer os.RemoveAll(dir)

	opts := fileproc.Options{ReadSize: 4096, Ordered: true}
	sums, err := fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (string, error) {
		h := sha256.New()
		n, err := io.Copy(h, f.Reader())
		return fmt.Sprintf("%.4x of %d bytes", h.Sum(nil), n), err
	})
	fmt.Println(sums, err)
	// Output: [c4bfb7e3 of 180000 bytes 786e1849 of 7 bytes] <nil>
}

// Open streams a file that is too large to be held in memory.
func ExampleFile_Open() {
	dir := onDisk(fstest.MapFS{
		"large.log": {Data: bytes.Repeat([]byte("one of many lines\n"), 10_000)},
		"small.log": {Data: []byte("a line\n")},
	})
	defer os.RemoveAll(dir)

	opts := fileproc.Options{ReadSize: 4096, Ordered: true}
	lines, err := fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (n int, err error) {
		if !f.Truncated() { // Data is the whole file
			return bytes.Count(f.Data(), []byte("\n")), nil
		}
		file, err := f.Open()
		if err != nil {
			return 0, err
		}
		defer file.Close()
		s := bufio.NewScanner(file)
		for s.Scan() {
			n++
		}
		return n, s.Err()
	})
	fmt.Println(lines, err)
	// Output: [10000 1] <nil>
}

// A result that would overwrite what others have saved meanwhile is given up.
func ExampleFile_Unchanged() {
	dir := onDisk(fstest.MapFS{"a.md": {Data: []byte("# A\n")}})
	defer os.RemoveAll(dir)

	err := fileproc.ForEach(context.Background(), dir, fileproc.Options{Stat: true}, func(f *fileproc.File) error {
		upper := bytes.ToUpper(f.Data())
		os.WriteFile(f.Path(), []byte("saved by someone else\n"), 0o666)
		if same, err := f.Unchanged(); err != nil || !same {
			fmt.Println(f.Rel(), "has changed")
			return err
		}
		return os.WriteFile(f.Path(), upper, 0o666)
	})
	fmt.Println(err)
	// Output:
	// a.md has changed
	// <nil>
}

// A listing has directories too, each before its contents, and links.
func ExampleOptions_allTypes() {
	fsys := fstest.MapFS{
		"a/b.md": {Data: []byte("# B\n")},
		"a/link": {Data: []byte("b.md"), Mode: fs.ModeSymlink},
		"empty":  {Mode: fs.ModeDir},
	}
	opts := fileproc.Options{AllTypes: true, Ordered: true, FS: fsys}
	lines, err := fileproc.Process(context.Background(), ".", opts, func(f *fileproc.File) (string, error) {
		switch {
		case f.IsDir():
			return f.Rel() + "/", nil
		case f.Type() == fs.ModeSymlink:
			text, err := f.ReadLink()
			return f.Rel() + " -> " + text, err
		}
		return fmt.Sprintf("%s: %d bytes", f.Rel(), len(f.Data())), nil
	})
	fmt.Println(strings.Join(lines, "\n"), err)
	// Output:
	// /
	// a/
	// a/b.md: 4 bytes
	// a/link -> b.md
	// empty/ <nil>
}

// A backup keeps the extended attributes, where there are any.
func ExampleFile_Xattrs() {
	f := fileproc.NewFile("a.md", []byte("# A\n"))
	_, err := f.Xattrs()
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	// Output: true
}

// Metadata as an fs.FileInfo is for functions that take one.
func ExampleFile_Info() {
	f := fileproc.NewFile("notes/a.md", []byte("# A\n"))
	info, err := f.Info()
	if err == nil {
		fmt.Println(info.Name(), info.Size())
	}
	// Output: a.md 4
}
