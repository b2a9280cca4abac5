// Command demo extracts the frontmatter of every ticket with fileproc and with a plain loop, in turn. It checks that both find the
// same, and prints the speed of each. scripts/demo.sh runs builds of it, one for each backend:
//
//	demo DIR [DIR...]
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func main() {
	log.SetFlags(0)
	const rounds = 15
	for _, dir := range os.Args[1:] {
		var found [2]string
		var perSecond [2][]float64
		for i := range 2 + 2*rounds {
			start := time.Now()
			extracts, err := []func(string) ([]extract, error){readPlain, readFileproc}[i%2](dir)
			if err != nil {
				log.Fatalf("demo: %s: %v", dir, err)
			}
			speed := float64(len(extracts)) / time.Since(start).Seconds()
			if i < 2 { // the first passes do not count
				found[i] = describe(extracts)
			} else {
				perSecond[i%2] = append(perSecond[i%2], speed)
			}
		}
		if found[0] != found[1] {
			log.Fatalf("demo: %s: the loop found %s, fileproc %s", dir, found[0], found[1])
		}
		for i := range perSecond {
			slices.Sort(perSecond[i])
		}
		plain, ours := perSecond[0], perSecond[1]
		fmt.Printf("%s: %s\n  %-20s %8.0f files/s (%.0f to %.0f)\n  %-20s %8.0f files/s (%.0f to %.0f), %.2f times the loop's\n",
			filepath.Base(dir), found[0], "WalkDir + ReadFile", plain[rounds/2], plain[0], plain[rounds-1],
			"fileproc, "+fileproc.Backend(), ours[rounds/2], ours[0], ours[rounds-1], ours[rounds/2]/plain[rounds/2])
	}
}

// describe is the same if the paths and the frontmatter are.
func describe(extracts []extract) string {
	slices.SortFunc(extracts, func(x, y extract) int { return strings.Compare(x.rel, y.rel) })
	return fmt.Sprintf("%d tickets, sha256 of the frontmatter %.8x", len(extracts), sha256.Sum256(fmt.Appendf(nil, "%q", extracts)))
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
