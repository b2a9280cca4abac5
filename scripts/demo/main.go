// Command demo extracts the frontmatter of every ticket with several builds of itself, one for each backend, and with a plain
// loop. It checks that all agree, and prints the speed of each. scripts/demo.sh runs it:
//
//	demo -bin ./demo-default,./demo-unix,./demo-generic DIR [DIR...]
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run() error {
	reader := flag.String("reader", "", "internal: read the directory with the `reader` fileproc or plain, and print an answer")
	bins := flag.String("bin", "", "comma-separated `programs`: this command built with different tags")
	flag.Parse()
	switch {
	case *reader == "fileproc":
		return read("fileproc "+fileproc.Backend(), readFileproc, flag.Arg(0))
	case *reader == "plain":
		return read("WalkDir + ReadFile", readPlain, flag.Arg(0))
	case *bins == "" || flag.NArg() == 0:
		return errors.New("usage: demo -bin PROGRAM,... DIR [DIR...]")
	}
	for _, dir := range flag.Args() {
		if err := show(strings.Split(*bins, ","), dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// An answer is what a reader found, and its speed.
type answer struct {
	Name      string // of the reader
	Found     string // the same if the paths and the frontmatter are
	PerSecond []float64
}

// The readers run in turn, round by round, so that noise on the machine affects all of them. Each is a process, because the
// backend is chosen at build time. It measures itself after a first pass, so its start does not count.
const rounds, passes = 5, 3

func show(programs []string, dir string) error {
	var names []string
	found := ""
	speeds := map[string][]float64{}
	for range rounds {
		for i := range len(programs) + 1 {
			kind := "fileproc"
			if i == len(programs) {
				kind = "plain" // which is the same in each program
			}
			cmd := exec.Command(programs[i%len(programs)], "-reader", kind, dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			var a answer
			if err = cmp.Or(err, json.Unmarshal(out, &a)); err != nil {
				return fmt.Errorf("%s: %w", cmd, err)
			}
			if found = cmp.Or(found, a.Found); a.Found != found {
				return fmt.Errorf("%s and %s disagree:\n%s\n%s", names[0], a.Name, found, a.Found)
			}
			if speeds[a.Name] == nil {
				names = append(names, a.Name)
			}
			speeds[a.Name] = append(speeds[a.Name], a.PerSecond...)
		}
	}
	fmt.Printf("%s: all readers found %s\n\n  %-20s %10s %12s  %s\n", filepath.Base(dir), found,
		"reader", "files/s", "times plain", "slowest to fastest pass")
	const middle = rounds * passes / 2
	plain := slices.Sorted(slices.Values(speeds[names[len(names)-1]]))[middle]
	for _, name := range names {
		s := slices.Sorted(slices.Values(speeds[name]))
		fmt.Printf("  %-20s %10.0f %12.2f  %.0f to %.0f\n", name, s[middle], s[middle]/plain, s[0], s[len(s)-1])
	}
	fmt.Println()
	return nil
}

// read prints an answer.
func read(name string, from func(dir string) ([]extract, error), dir string) error {
	extracts, err := from(dir)
	a := answer{Name: name}
	slices.SortFunc(extracts, func(x, y extract) int { return strings.Compare(x.rel, y.rel) })
	hash := sha256.New()
	for _, x := range extracts {
		fmt.Fprintf(hash, "%s\x00%d\x00%s", x.rel, len(x.frontmatter), x.frontmatter)
	}
	a.Found = fmt.Sprintf("%d tickets, sha256 of the frontmatter %.8x", len(extracts), hash.Sum(nil))
	for i := 0; i < passes && err == nil; i++ {
		start := time.Now()
		extracts, err = from(dir)
		a.PerSecond = append(a.PerSecond, float64(len(extracts))/time.Since(start).Seconds())
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(a))
}

type extract struct{ rel, frontmatter string }

func readFileproc(dir string) ([]extract, error) {
	opts := fileproc.Options{Suffixes: []string{".md"}, ReadSize: 2048} // no frontmatter is longer
	return fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (extract, error) {
		front, err := tickets.Frontmatter(f.Data())
		return extract{f.Rel(), string(front)}, err
	})
}

func readPlain(dir string) (extracts []extract, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".md") {
			return err
		}
		data, err := os.ReadFile(path)
		front, errFront := tickets.Frontmatter(data)
		rel, errRel := filepath.Rel(dir, path)
		extracts = append(extracts, extract{rel, string(front)})
		return cmp.Or(err, errFront, errRel)
	})
	return extracts, err
}
