//go:build linux

// Package scale measures what a run costs on this machine, and simulates runs on more cores: their workers, their locks, and the
// cache lines that the kernel writes for each file.
package scale

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/host"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// The trees that are measured, with files of 411 bytes.
var trees = []load{{"flat", 0, 10_000, false, 1, false}, {"nested", 100, 10_000, false, 1, false}, {"many", 2_000, 2_000 * manyFiles, false, 1, false}}

// The trees of the model.
var loads = []load{
	{"flat, content", 0, 200_000, false, 1, false},
	{"flat, content, listed in 2 parts", 0, 200_000, false, 2, true},
	{"flat, content, listed in a part for each core", 0, 200_000, false, 0, true},
	{"nested, content (100 files a directory)", 2000, 200_000, false, 1, false},
	{"many directories, content (4 files each)", 25_000, 25_000 * manyFiles, false, 1, false},
	{"flat, metadata", 0, 200_000, true, 1, false},
	{"flat, metadata, listed in a part for each core", 0, 200_000, true, 0, true},
	{"the same, looked up through one part", 0, 200_000, true, 0, false},
	{"nested, metadata", 2000, 200_000, true, 1, false},
	{"many directories, metadata", 25_000, 25_000 * manyFiles, true, 1, false},
}

const manyFiles = 4 // in each of many directories

// modes are the runs that are measured over each tree: the listing, and content and metadata, fetched together and alone.
var modes = map[string]fileproc.Options{
	"listing": {Suffixes: []string{".none"}},
	"content": {}, "content alone": {Select: func(*fileproc.File) bool { return true }}, "metadata": {ReadSize: fileproc.NoRead, Stat: true},
	"metadata alone": {ReadSize: fileproc.NoRead, Stat: true, Select: func(*fileproc.File) bool { return true }},
}

func Main(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench scale", flag.ContinueOnError)
	passes := flags.Int("passes", 100, "`passes` of each run; the quickest counts, since what else the machine does only adds")
	// The first four were measured with clocks in the mutexes and with a sync.Cond, on an Intel Xeon, 2026-11-27; Table is assumed.
	c := costs{Pool: 100, Cache: 10, CacheUses: 5, Wake: 12_000, Table: 30}
	flags.Float64Var(&c.Move, "move", 50, "`ns` of a cache line from core to core: 51 in a Xeon 8375C (github.com/nviennot/core-to-core-latency)")
	return fail.Try(func() {
		fail.On(flags.Parse(args))
		tmp := fail.Must(os.MkdirTemp("", "scale-"))
		defer fail.Undo(func() error { return os.RemoveAll(tmp) })
		least := times(ctx, tmp, *passes)
		one := func(tree, mode string) float64 { return least[fmt.Sprint(tree, mode, 1)] }
		c.List = one("flat", "listing")
		c.Content, c.ContentAlone = one("flat", "content")-c.List, one("flat", "content alone")-c.List
		c.Metadata, c.MetadataAlone = one("flat", "metadata")-c.List, one("flat", "metadata alone")-c.List
		c.Dir = (one("many", "metadata alone")-one("flat", "metadata alone"))*manyFiles - 3*c.Pool - c.CacheUses*c.Cache
		fmt.Printf("%s\n\n%+v\n\n| tree | workers | ns a file | model / measured |\n|---|---|---|---|\n", host.Machine(tmp), c)
		for _, l := range trees {
			for i, mode := range []string{"content", "content", "metadata", "metadata"} {
				l.metadata = mode == "metadata"
				ns, _, _ := simulate(c, l, 1+i%2)
				was := least[fmt.Sprint(l.name, mode, 1+i%2)]
				fmt.Printf("| %s, %s | %d | %.0f | %.2f |\n", l.name, mode, 1+i%2, was, ns/float64(l.files)/was)
			}
		}
		fmt.Println("\nA model: speed, one core's is 1.\n\n|cores|2|4|8|16|32|64|128| |\n|---|---|---|---|---|---|---|---|---|")
		for _, l := range loads {
			fmt.Println(row(c, l))
		}
	})
}

// times makes the trees in tmp, and returns the least nanoseconds a file of each tree, mode and number of workers.
func times(ctx context.Context, tmp string, passes int) map[string]float64 {
	least := map[string]float64{}
	for i := range passes + 1 { // the first warms up
		for _, l := range trees {
			for k := 0; i == 0 && k < l.files; k++ {
				path := filepath.Join(tmp, l.name, strings.Repeat(fmt.Sprintf("directory-%05d", k%max(1, l.dirs)), min(1, l.dirs)), fmt.Sprintf("ticket-%07d.md", k))
				fail.On(os.MkdirAll(filepath.Dir(path), 0o755))
				fail.On(os.WriteFile(path, make([]byte, 411), 0o644))
			}
			for mode, opts := range modes {
				for opts.Workers = 1; opts.Workers <= 2; opts.Workers++ {
					p := fail.Must(turns.Timed(func() (int, int64, error) {
						return 0, 0, fileproc.ForEach(ctx, filepath.Join(tmp, l.name), opts, func(*fileproc.File) error { return nil })
					}))
					run, ns := fmt.Sprint(l.name, mode, opts.Workers), p.Wall/float64(l.files)
					if i < 2 || ns < least[run] {
						least[run] = ns
					}
				}
			}
		}
	}
	return least
}

// row returns the speed of the model on more cores relative to one. It also names the first number of cores with a speed below 0.7
// times the cores (above 32 cores: 0.5), and what limits it there.
func row(c costs, l load) string {
	text, why, one := "|"+l.name+"|", "", 0.0
	for n := 1; n <= 128; n *= 2 {
		on := l
		on.parts = cmp.Or(l.parts, n)
		ns, busiest, _ := simulate(c, on, n)
		if one = cmp.Or(one, ns); n == 1 {
			continue
		}
		text += fmt.Sprintf("%.1f|", one/ns)
		if share := one / ns / float64(n); why == "" && (share < 0.5 || n <= 32 && share < 0.7) {
			why = fmt.Sprintf("%d cores: %s, in use %.0f %%", n, busiest.name, 100*busiest.busy/ns)
		}
	}
	return text + why + "|"
}
