// Command demo extracts the frontmatter of every ticket with several builds of itself, one for each backend, and with a plain
// loop. It checks that all agree, and prints a summary of the tickets and the speed of each. scripts/demo.sh runs it:
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
	"maps"
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
	case *reader == "fileproc" && flag.NArg() == 1:
		return read("fileproc "+fileproc.Backend(), readFileproc, flag.Arg(0))
	case *reader == "plain" && flag.NArg() == 1:
		return read("WalkDir + ReadFile", readPlain, flag.Arg(0))
	case *reader != "" || *bins == "" || flag.NArg() == 0:
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
	Summary   string // the same if the paths and the frontmatter are
	PerSecond []float64
}

// The readers run in turn, round by round, so that noise on the machine affects all of them. Each is a process, because the
// backend is chosen at build time. It measures itself after a first pass, so its start does not count.
const rounds, passes = 5, 3

func show(programs []string, dir string) error {
	var names []string
	summary := ""
	speeds := map[string][]float64{}
	for range rounds {
		for i := range len(programs) + 1 {
			kind := "fileproc"
			if i == len(programs) {
				kind = "plain" // which is the same in each program
			}
			a, err := ask(programs[i%len(programs)], kind, dir)
			if err != nil {
				return err
			}
			if speeds[a.Name] == nil {
				names = append(names, a.Name)
			}
			if summary = cmp.Or(summary, a.Summary); a.Summary != summary {
				return fmt.Errorf("%s and %s disagree:\n%s\n%s", names[0], a.Name, summary, a.Summary)
			}
			speeds[a.Name] = append(speeds[a.Name], a.PerSecond...)
		}
	}
	fmt.Printf("%s: %s", filepath.Base(dir), summary)
	fmt.Printf("  agreed     %s: the same frontmatter, byte for byte\n\n", strings.Join(names, ", "))
	fmt.Printf("  %-20s %10s %12s  %s\n", "reader", "files/s", "times plain", "slowest to fastest pass")
	const middle = rounds * passes / 2
	plain := slices.Sorted(slices.Values(speeds[names[len(names)-1]]))[middle]
	for _, name := range names {
		s := slices.Sorted(slices.Values(speeds[name]))
		fmt.Printf("  %-20s %10.0f %12.2f  %.0f to %.0f\n", name, s[middle], s[middle]/plain, s[0], s[len(s)-1])
	}
	fmt.Println()
	return nil
}

func ask(program, kind, dir string) (a answer, err error) {
	cmd := exec.Command(program, "-reader", kind, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return a, fmt.Errorf("%s: %w", program, err)
	}
	return a, json.Unmarshal(out, &a)
}

// read prints an answer. A timed pass extracts the frontmatter but does not read its fields, which would cost every reader the
// same and hide the difference.
func read(name string, from func(dir string) ([]extract, error), dir string) error {
	extracts, err := from(dir)
	if err != nil {
		return err
	}
	a := answer{Name: name, Summary: summarize(extracts)}
	for range passes {
		start := time.Now()
		if extracts, err = from(dir); err != nil {
			return err
		}
		a.PerSecond = append(a.PerSecond, float64(len(extracts))/time.Since(start).Seconds())
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

type extract struct{ rel, frontmatter string }

func readFileproc(dir string) ([]extract, error) {
	opts := fileproc.Options{Suffixes: []string{".md"}, ReadSize: 2048} // no frontmatter is longer
	return fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (extract, error) {
		front, err := tickets.Frontmatter(f.Data())
		return extract{f.Rel(), string(front)}, err
	})
}

func readPlain(dir string) ([]extract, error) {
	var extracts []extract
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".md") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		front, err := tickets.Frontmatter(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		rel, err := filepath.Rel(dir, path)
		extracts = append(extracts, extract{rel, string(front)})
		return err
	})
	return extracts, err
}

// summarize counts, finds the newest ticket, and hashes the sorted paths and frontmatters.
func summarize(extracts []extract) string {
	slices.SortFunc(extracts, func(x, y extract) int { return strings.Compare(x.rel, y.rel) })
	status, kind, newest := map[string]int{}, map[string]int{}, ""
	hash := sha256.New()
	for _, x := range extracts {
		fmt.Fprintf(hash, "%s\x00%d\x00%s", x.rel, len(x.frontmatter), x.frontmatter)
		field := func(key string) string { return tickets.Field([]byte(x.frontmatter), key) }
		status[field("status")]++
		kind[field("type")]++
		date, _, _ := strings.Cut(field("created"), "T")
		newest = max(newest, fmt.Sprintf("%s  %s  %s", date, field("id"), field("title")))
	}
	return fmt.Sprintf("%d tickets\n  by status  %s\n  by type    %s\n  newest     %s\n  sha256     %.8x\n",
		len(extracts), counts(status), counts(kind), newest, hash.Sum(nil))
}

// counts formats m, the most frequent first.
func counts(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s %d", k, m[k])
	}
	return strings.Join(keys, ", ")
}
