package fileproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"testing/fstest"

	"github.com/fileproc/fileproc"
)

// title returns the title in a ticket's frontmatter.
func title(content []byte) (string, bool) {
	for line := range bytes.Lines(content) {
		if t, ok := bytes.CutPrefix(line, []byte("title: ")); ok {
			return string(bytes.TrimSpace(t)), true
		}
	}
	return "", false
}

// The titles of all tickets below a directory.
func ExampleProcess() {
	ctx := context.Background()
	opts := fileproc.Options{Suffixes: []string{".md"}, MaxDepth: 2, SkipHidden: true}
	titles, err := fileproc.Process(ctx, "testdata/example", opts, func(f *fileproc.File) (string, error) {
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
	opts := fileproc.Options{Suffixes: []string{".md"}}
	open := 0
	for isOpen, err := range fileproc.Stream(ctx, "testdata/example", opts, func(f *fileproc.File) (bool, error) {
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
	for e, err := range fileproc.Walk(context.Background(), "testdata/example", fileproc.Options{SkipHidden: true}) {
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
	entries, err := fileproc.ReadDir("testdata/example")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b fs.DirEntry) int {
		return bytes.Compare([]byte(a.Name()), []byte(b.Name()))
	}) {
		fmt.Println(e)
	}
	// Output:
	// d 2026-01/
	// d 2026-02/
	// - README.md
}

func ExampleBackend() {
	fmt.Println("directories are read by the", fileproc.Backend(), "backend")
}

// Select picks by size or age before a file is opened, as an incremental cache does.
func ExampleOptions_select() {
	opts := fileproc.Options{
		Suffixes: []string{".md"},
		Select: func(f *fileproc.File) bool {
			s, err := f.Stat()
			return err != nil || s.Size > 100 // what cannot be looked at is opened, and its error told
		},
	}
	large, err := fileproc.Process(context.Background(), "testdata/example", opts, func(f *fileproc.File) (string, error) {
		return f.Rel(), nil
	})
	fmt.Println(large, err)
	// Output: [2026-02/T-0003.md] <nil>
}

// The beginning of each file is enough where only a header matters.
func ExampleOptions_readSize() {
	opts := fileproc.Options{Suffixes: []string{".md"}, ReadSize: 4}
	marks, err := fileproc.Process(context.Background(), "testdata/example/2026-01", opts, func(f *fileproc.File) (string, error) {
		return fmt.Sprintf("%q %t", f.Data(), f.Truncated()), nil
	})
	fmt.Println(marks, err)
	// Output: ["---\n" true "---\n" true] <nil>
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

// An fs.FS, such as an embed.FS or a zip file, is read in place of the operating system's files.
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
	opts := fileproc.Options{Suffixes: []string{".md"}, Report: &report}
	_, err := fileproc.Process(context.Background(), "testdata/example", opts, func(f *fileproc.File) (struct{}, error) {
		return struct{}{}, nil
	})
	if err != nil {
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

// A function that has found what it looked for stops the run; that is no error.
func ExampleProcess_skipAll() {
	var found atomic.Pointer[string] // fn runs on several goroutines
	_, err := fileproc.Process(context.Background(), "testdata/example", fileproc.Options{}, func(f *fileproc.File) (struct{}, error) {
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
	_, err := fileproc.Process(context.Background(), "testdata/example", fileproc.Options{Workers: workers, Suffixes: []string{".md"}}, func(f *fileproc.File) (struct{}, error) {
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
