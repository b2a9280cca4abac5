package pipe_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing/fstest"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/pipe"
)

// A batch program is Main with a function for one file. An engine starts it as
// "program DIR", with names on standard input.
func ExampleMain() {
	type ticket struct {
		Title string `json:"title"`
	}
	main := func() {
		pipe.Main(fileproc.Options{Suffixes: []string{".md"}}, func(f *fileproc.File) (ticket, error) {
			title, ok := bytes.CutPrefix(f.Data(), []byte("# "))
			if !ok {
				return ticket{}, fmt.Errorf("no title")
			}
			return ticket{string(bytes.TrimSpace(title))}, nil
		})
	}
	_ = main
}

// Run is Main for a program with a command line of its own, here one that reads an
// fs.FS.
func ExampleRun() {
	tickets := fstest.MapFS{"2024/1.md": {Data: []byte("# First\n")}, "2024/2.md": {Data: []byte("")}, "notes.txt": {}}
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}, Ordered: true}
	names := strings.NewReader("2024/1.md\n2024/2.md\n2024/3.md\nnotes.txt\n")
	err := pipe.Run(context.Background(), ".", names, os.Stdout, opts, func(f *fileproc.File) (string, error) {
		title, ok := bytes.CutPrefix(f.Data(), []byte("# "))
		if !ok {
			return "", fmt.Errorf("no title")
		}
		return string(bytes.TrimSpace(title)), nil
	})
	fmt.Println("batch:", err)
	// Unordered output:
	// {"path":"2024/1.md","result":"First"}
	// {"path":"2024/2.md","error":"process: no title"}
	// {"path":"2024/3.md","error":"open: file does not exist"}
	// {"path":"notes.txt","skipped":true}
	// batch: <nil>
}

func ExampleList() {
	tickets := fstest.MapFS{"2024/1.md": {}, "2024/new\nline.md": {}, "notes.txt": {}}
	opts := fileproc.Options{FS: tickets, Suffixes: []string{".md"}, Ordered: true}
	if err := pipe.List(context.Background(), ".", os.Stdout, opts); err != nil {
		fmt.Println(err)
	}
	// Output:
	// "2024/1.md"
	// "2024/new\nline.md"
}
