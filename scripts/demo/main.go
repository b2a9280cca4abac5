// Command demo extracts the frontmatter of every ticket with several builds of itself, one for each backend, and with a
// plain loop. It checks that all agree, and prints a summary of the tickets and the speed of each. scripts/demo.sh runs it:
//
//	demo -bin ./demo-default,./demo-unix,./demo-generic DIR...
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run() error {
	worker := flag.String("worker", "", "internal: answer requests on standard input as `reader` "+readerFileproc+" or "+readerPlain)
	bins := flag.String("bin", "", "comma-separated `programs`: this command built with different tags")
	rounds := flag.Int("rounds", 15, "timed `rounds`, of which the median is printed")
	flag.Parse()
	if *worker != "" {
		return serve(*worker, os.Stdin, os.Stdout)
	}
	if *bins == "" || flag.NArg() == 0 || *rounds < 1 {
		return errors.New("usage: demo -bin PROGRAM,... [-rounds N] DIR [DIR...]")
	}

	readers, err := startReaders(strings.Split(*bins, ","))
	defer func() {
		for _, r := range readers {
			r.close()
		}
	}()
	if err != nil {
		return err
	}
	for _, dir := range flag.Args() {
		if err := show(readers, dir, *rounds); err != nil {
			return err
		}
	}
	return nil
}

// startReaders starts each program as a reader of its own backend, and the first one as the plain loop.
func startReaders(programs []string) (readers []*reader, err error) {
	add := func(program, kind string) {
		if err == nil {
			var r *reader
			if r, err = startReader(program, kind); err == nil {
				readers = append(readers, r)
			}
		}
	}
	for _, p := range programs {
		add(p, readerFileproc)
	}
	add(programs[0], readerPlain)
	return readers, err
}

func show(readers []*reader, dir string, rounds int) error {
	var first answer
	names := make([]string, len(readers))
	for i, r := range readers {
		a, err := r.ask(request{Dir: dir, Parse: true})
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		names[i] = a.Name
		if i == 0 {
			first = a
		} else if err := first.disagrees(a); err != nil {
			return fmt.Errorf("%s: %s and %s disagree: %w", dir, first.Name, a.Name, err)
		}
	}

	date, _, _ := strings.Cut(first.Newest.Created, "T")
	fmt.Printf("%s: %d tickets\n", filepath.Base(dir), first.Files)
	fmt.Printf("  by status  %s\n", counts(first.Status))
	fmt.Printf("  by type    %s\n", counts(first.Type))
	fmt.Printf("  newest     %s  %s  %s\n", first.Newest.ID, date, first.Newest.Title)
	fmt.Printf("  agreed     %s: the same frontmatter, byte for byte\n\n", strings.Join(names, ", "))
	return race(readers, names, dir, rounds)
}

// race times the readers in turn, round by round, so that noise on the machine affects all of them. A timed run extracts
// the frontmatter but does not read its fields, which would cost every reader the same and hide the difference.
func race(readers []*reader, names []string, dir string, rounds int) error {
	perSecond := make([][]float64, len(readers))
	for range rounds {
		for i, r := range readers {
			a, err := r.ask(request{Dir: dir})
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			perSecond[i] = append(perSecond[i], float64(a.Files)/a.Elapsed.Seconds())
		}
	}
	plain := measure.Median(perSecond[len(readers)-1])
	fmt.Printf("  %-20s %10s %12s  %s\n", "reader", "files/s", "times plain", "slowest to fastest round")
	for i, name := range names {
		s := measure.Summarize(perSecond[i])
		fmt.Printf("  %-20s %10.0f %12.2f  %.0f to %.0f\n", name, s.Median, s.Median/plain, s.Min, s.Max)
	}
	fmt.Println()
	return nil
}
