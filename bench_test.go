package fileproc_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fileproc/fileproc"
)

// The benchmarks read .data/tickets_{layout}_{files}, which scripts/tickets
// makes. Sets of up to 5,000 files are made here if they are missing, simpler
// ones of the same size; larger ones are left out with a hint.

var modes = []struct {
	name string
	opts fileproc.Options
}{
	{"frontmatter", fileproc.Options{ReadSize: 2048}},
	{"whole", fileproc.Options{}},
	{"stat", fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}},
	{"names", fileproc.Options{ReadSize: fileproc.NoRead}},
}

func BenchmarkProcess(b *testing.B) {
	for _, layout := range []string{"flat", "nested1", "nested3"} {
		for _, files := range []string{"1k", "5k", "100k", "1m"} {
			dir, ok := dataset(b, layout, files)
			if !ok {
				continue
			}
			for _, m := range modes {
				b.Run(fmt.Sprintf("layout=%s/files=%s/mode=%s", layout, files, m.name), func(b *testing.B) {
					var report fileproc.Report
					opts := m.opts
					opts.Report = &report
					b.ReportAllocs()
					for b.Loop() {
						_, err := fileproc.Process(b.Context(), dir, opts, func(f *fileproc.File) (struct{}, error) {
							if m.name == "frontmatter" {
								frontmatter(f.Data())
							}
							return struct{}{}, nil
						})
						if err != nil {
							b.Fatal(err)
						}
					}
					perFile(b, report.Processed, report.Bytes)
				})
			}
		}
	}
}

// BenchmarkSmall compares with the loop that people write for one directory.
func BenchmarkSmall(b *testing.B) {
	for _, files := range []int{1, 2, 10, 100, 1000} {
		dir := b.TempDir()
		fill(b, dir, files)
		b.Run(fmt.Sprintf("files=%d/by=fileproc", files), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got, err := fileproc.Process(context.Background(), dir, fileproc.Options{}, func(f *fileproc.File) (int, error) {
					return len(f.Data()), nil
				})
				if err != nil || len(got) != files {
					b.Fatal(len(got), err)
				}
			}
			perFile(b, int64(files), 0)
		})
		b.Run(fmt.Sprintf("files=%d/by=loop", files), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				entries, err := os.ReadDir(dir)
				if err != nil {
					b.Fatal(err)
				}
				got := make([]int, 0, len(entries))
				for _, e := range entries {
					data, err := os.ReadFile(filepath.Join(dir, e.Name()))
					if err != nil {
						b.Fatal(err)
					}
					got = append(got, len(data))
				}
				if len(got) != files {
					b.Fatal(len(got))
				}
			}
			perFile(b, int64(files), 0)
		})
	}
}

func BenchmarkReadDir(b *testing.B) {
	for _, files := range []string{"1k", "5k", "100k", "1m"} {
		dir, ok := dataset(b, "flat", files)
		if !ok {
			continue
		}
		for _, by := range []struct {
			name string
			list func() (int, error)
		}{
			{"fileproc", func() (int, error) {
				entries, err := fileproc.ReadDir(dir)
				return len(entries), err
			}},
			{"os.ReadDir", func() (int, error) {
				entries, err := os.ReadDir(dir)
				return len(entries), err
			}},
			{"Readdir", func() (int, error) { // stats every file
				f, err := os.Open(dir)
				if err != nil {
					return 0, err
				}
				defer f.Close()
				entries, err := f.Readdir(-1)
				return len(entries), err
			}},
		} {
			b.Run(fmt.Sprintf("files=%s/by=%s", files, by.name), func(b *testing.B) {
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					var err error
					if n, err = by.list(); err != nil {
						b.Fatal(err)
					}
				}
				perFile(b, int64(n), 0)
			})
		}
	}
}

// perFile reports what one file costs. The time of b.Loop is that of the loop
// so far, so it comes last.
func perFile(b *testing.B, files, bytes int64) {
	total := float64(files) * float64(b.N)
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(seconds*1e9/total, "ns/file")
	b.ReportMetric(total/seconds, "files/s")
	if bytes > 0 {
		b.ReportMetric(float64(bytes)*float64(b.N)/1e6/seconds, "MB/s")
	}
}

// frontmatter returns what is between the first two lines of dashes.
func frontmatter(data []byte) []byte {
	const fence = "---\n"
	if !bytes.HasPrefix(data, []byte(fence)) {
		return nil
	}
	body, _, _ := bytes.Cut(data[len(fence):], []byte("\n"+fence))
	return body
}

func dataset(b *testing.B, layout, files string) (dir string, ok bool) {
	name := "tickets_" + layout + "_" + files
	dir = filepath.Join(".data", name)
	if _, err := os.Stat(dir + ".json"); err == nil { // the manifest: the set is complete
		return dir, true
	}
	sizes := map[string]int{"1k": 1000, "5k": 5000}
	n, small := sizes[files]
	if !small {
		fmt.Printf("# %s is missing: cd scripts && go run ./tickets -out ../.data -layout %s -count %s\n", name, layout, files)
		return "", false
	}
	dir = filepath.Join(".data", "bench_"+layout+"_"+files)
	if info, err := fs.ReadDir(os.DirFS(".data"), filepath.Base(dir)); err == nil && len(info) > 0 {
		return dir, true
	}
	tmp, err := os.MkdirTemp(".", ".bench")
	if err == nil {
		err = os.MkdirAll(".data", 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	switch layout {
	case "flat":
		fill(b, tmp, n)
	case "nested1":
		for month := range 10 {
			fill(b, filepath.Join(tmp, fmt.Sprintf("2025-%02d", month+1)), n/10)
		}
	case "nested3":
		for i := range 100 {
			fill(b, filepath.Join(tmp, fmt.Sprint(i/50), fmt.Sprint(i/5), fmt.Sprint(i)), n/100)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		b.Fatal(err)
	}
	return dir, true
}

func fill(b *testing.B, dir string, files int) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	text := "---\nid: 1\nstatus: open\ntype: bug\n---\n" + strings.Repeat("Lorem ipsum dolor sit amet. ", 13)
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("ticket-%06d.md", i)), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}
