package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// A picture is of the medians of a block.
type picture struct {
	title, unit, label, alt string
	value                   func(ns float64) float64 // of ns/file
	sets                    bool                     // a group of bars is of a set, not of a side
	about                   string                   // what a reader must know, for the caption
}

var pictures = map[string]picture{
	"peers": {"Whole files read per second (longer is better)", "thousand files per second", "%.0f", "Files per second of fileproc and its peers, with ranges",
		func(ns float64) float64 { return 1e6 / ns }, false, "All but fileproc read with os.ReadFile.\n"},
	"backends": {"Time per file of each backend (shorter is better)", "µs per file", "%.1f", "Time per file of each backend on each set, with ranges",
		micros, true, "Builds of one program, all of them run on Linux. nouring: linux without io_uring;\nunix: as on macOS and BSD; generic: as on Windows.\n"},
	"sizes": {"Time per file in one directory, by number of files (shorter is better)", "µs per file", "%.1f", "Time per file against the number of files", micros, true, ""},
	"workers": {"Files read per second by number of workers (longer is better)", "thousand files per second", "%.0f", "Files per second against the number of workers",
		func(ns float64) float64 { return 1e6 / ns }, false, ""},
	"floor": {"Time of fileproc relative to the bare system calls in C (shorter is better)", "wall time / wall time of the C program", "%.2f",
		"Time of fileproc over that of the bare system calls in C, with ranges and a line at 1", nil, false,
		"whole: each file is read; prefix: its first 2,048 bytes; stat: its size and time; ReadDir: names alone.\n" +
			"The C program makes plain system calls and does nothing else, with one thread per core.\n"},
	"bare": {"Bare loops: time relative to the C loop (shorter is better)", "wall time / wall time of the C loop", "%.2f",
		"Time of bare loops over that of the C loop, with io_uring by the depth of the ring, with ranges", nil, false,
		"The loops list, open, read and close, and do nothing else, with one thread per core.\n"},
}

// plot draws the fastest side of the peers on top. Without a value it draws ratios of the pairs.
func (p picture) plot(r results, file string) error {
	b := figure.Bars{Title: p.title, Unit: p.unit, Label: p.label, Kinds: r.sets(), Caption: r.caption(p.about)}
	if p.value == nil {
		b.One = "1: as fast as the C program"
		b.Value = func(c, set string) (measure.Spread, bool) { wall, _, ok := r.ratios(set, c); return wall, ok }
		for _, c := range r.comparisons() {
			measured := slices.ContainsFunc(b.Kinds, func(set string) bool { _, ok := b.Value(c, set); return ok })
			if measured && !strings.HasSuffix(c, "os.ReadDir") { // os.ReadDir is not a floor
				b.Names = append(b.Names, c)
			}
		}
		if b.Names == nil {
			return errNothing // without a C compiler
		}
		return b.Save(file)
	}
	b.Value = func(who, set string) (s measure.Spread, ok bool) {
		if p.sets {
			who, set = set, who
		}
		if side := r.find(set, who); side != nil {
			return each(side.wall, p.value), true
		}
		return s, false
	}
	sides := slices.Clone(r.on(b.Kinds[0]))
	if strings.HasPrefix(p.about, "All but fileproc") {
		slices.SortStableFunc(sides, func(a, b *series) int { return cmp.Compare(measure.Median(a.wall), measure.Median(b.wall)) })
	}
	for _, s := range sides {
		b.Names = append(b.Names, s.who)
	}
	if p.sets {
		b.Names, b.Kinds = b.Kinds, b.Names
	}
	return b.Save(file)
}
