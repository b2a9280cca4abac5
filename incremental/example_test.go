package incremental_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
)

// The second run processes what has changed, and has the same results as a full one.
func Example() {
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	notes := filepath.Join(dir, "notes")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(notes, name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	if err := os.Mkdir(notes, 0o755); err != nil {
		log.Fatal(err)
	}
	write("a.md", "# Apples\n")
	write("b.md", "# Pears\n")

	inc := incremental.Options[string]{
		File:    filepath.Join(dir, "notes.cache"),
		Version: "1",                        // change it with the function
		Compare: incremental.CompareContent, // for the example: the files are too new for their times
		Deleted: func(rel string) { fmt.Println("gone:", rel) },
	}
	titles := func() {
		var report fileproc.Report
		opts := fileproc.Options{Suffixes: []string{".md"}, Ordered: true, Report: &report}
		all, err := incremental.Process(context.Background(), notes, inc, opts, func(f *fileproc.File) (string, error) {
			line, _, _ := bytes.Cut(f.Data(), []byte("\n"))
			return string(line), nil
		})
		fmt.Println(all, err, "processed:", report.Processed, "unchanged:", report.Unchanged)
	}
	titles()
	write("c.md", "# Plums\n")
	if err := os.Remove(filepath.Join(notes, "b.md")); err != nil {
		log.Fatal(err)
	}
	titles()
	// Output:
	// [# Apples # Pears] <nil> processed: 2 unchanged: 0
	// gone: b.md
	// [# Apples # Plums] <nil> processed: 1 unchanged: 1
}

func ExampleStream() {
	inc := incremental.Options[int]{File: filepath.Join(os.TempDir(), "sizes.cache")}
	for n, err := range incremental.Stream(context.Background(), "testdata", inc, fileproc.Options{}, func(f *fileproc.File) (int, error) {
		return len(f.Data()), nil
	}) {
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println(n)
	}
}

// A linter looks again only at files that have changed or had findings: a failure is
// not kept.
func ExampleForEach() {
	inc := incremental.Options[struct{}]{File: "lint.cache", Version: "rules of 2"}
	opts := fileproc.Options{Suffixes: []string{".go"}}
	err := incremental.ForEach(context.Background(), ".", inc, opts, func(f *fileproc.File) error {
		if bytes.Contains(f.Data(), []byte("\r\n")) {
			return fmt.Errorf("carriage returns")
		}
		return nil
	})
	fmt.Println(err)
}

func ExampleRaw() {
	inc := incremental.Options[[]byte]{File: "frontmatter.cache", Codec: incremental.Raw[[]byte]()}
	fronts, err := incremental.Process(context.Background(), "posts", inc, fileproc.Options{}, func(f *fileproc.File) ([]byte, error) {
		front, _, _ := bytes.Cut(f.Data(), []byte("\n---\n"))
		return bytes.Clone(front), nil
	})
	fmt.Println(len(fronts), err)
}
