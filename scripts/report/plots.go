package main

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

const (
	width  = 8 * vg.Inch
	margin = vg.Length(10)
)

// Colours that people with a colour vision deficiency can tell apart too.
var colors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

func newPlot(title, x, y string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = 16
	p.Title.Padding = 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size = 13
		a.Tick.Label.Font.Size = 12
	}
	p.Legend.TextStyle.Font.Size = 12
	p.Legend.Padding = 3
	p.Legend.XOffs = -8 // its lines are longer than their room
	return p
}

var formats = []string{"svg", "png"}

func savePlot(p *plot.Plot, name string) error { return savePlotOf(p, name, 5*vg.Inch) }

func savePlotOf(p *plot.Plot, name string, height vg.Length) error {
	for _, format := range formats {
		canvas, err := draw.NewFormattedCanvas(width, height, format)
		if err != nil {
			return err
		}
		c := draw.New(canvas)
		c.SetColor(color.White) // the margin too: a page may be dark
		c.Fill(c.Rectangle.Path())
		p.Draw(draw.Crop(c, margin, -margin, margin, -margin))
		f, err := os.Create(name + "." + format)
		if err != nil {
			return err
		}
		_, err = canvas.WriteTo(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// short writes 100k for 100,000.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.6gm", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.6gk", v/1e3)
	default:
		return fmt.Sprintf("%.6g", v)
	}
}

// A barChart has a group of horizontal bars for each name, from top to bottom, with one bar of each kind.
type barChart struct {
	title, unit  string
	names, kinds []string
	value        func(name, kind string) (v float64, ok bool)
	label        string // the format of a value
}

func (b barChart) save(file string) error {
	p := newPlot(b.title, b.unit, "")
	thick := 13.0 // points, as everything here that is not a part of a group's height
	if len(b.kinds) > 2 {
		thick = 10
	}
	slot := 0.84 / float64(len(b.kinds)) // a part of a group's height
	group := thick * 1.08 / slot
	longest := 0.0
	for i, kind := range b.kinds {
		at := 0.42 - slot*(float64(i)+0.5) // beside the middle of the group, the first kind on top
		var values plotter.Values
		labels := plotter.XYLabels{}
		for k, name := range slices.Backward(b.names) {
			v, ok := b.value(name, kind)
			values = append(values, v)
			if !ok {
				continue
			}
			labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: float64(len(b.names)-1-k) + at})
			labels.Labels = append(labels.Labels, english.Sprintf(b.label, v))
			longest = max(longest, v)
		}
		bars, err := plotter.NewBarChart(values, vg.Length(thick))
		if err != nil {
			return err
		}
		bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, at, colors[i], 0
		tags, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		for k := range tags.TextStyle {
			tags.TextStyle[k].Font = font.From(p.X.Tick.Label.Font, 11)
			tags.TextStyle[k].YAlign = text.YCenter
		}
		tags.Offset.X = 4
		p.Add(bars, tags)
		if len(b.kinds) > 1 {
			p.Legend.Add(kind, bars)
		}
	}
	backward := slices.Clone(b.names)
	slices.Reverse(backward)
	p.NominalY(backward...)
	p.Y.Tick.Width = 0
	p.X.Min, p.X.Max = 0, longest*1.12 // the longest bar's label needs room
	p.X.Tick.Marker = shortTicks
	p.Y.Min, p.Y.Max = -0.5, float64(len(b.names))-0.5
	if len(b.kinds) > 1 { // below the bars
		p.Y.Min -= (18*float64(len(b.kinds)) + 6) / group
	}
	const around = 110 // the title and the axis
	return savePlotOf(p, file, vg.Length((p.Y.Max-p.Y.Min)*group+around))
}

var shortTicks = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = short(t.Value)
		}
	}
	return ticks
})

// plotPeers draws the fastest on top.
func plotPeers(name string, r results) error {
	sets := r.sets()
	var sides []*series
	for _, s := range r.on(sets[0]) {
		if !slices.ContainsFunc(sets, func(set string) bool { return r.find(set, s.who) == nil }) {
			sides = append(sides, s)
		}
	}
	slices.SortStableFunc(sides, func(a, b *series) int { return cmp.Compare(measure.Median(a.wall), measure.Median(b.wall)) })
	var names []string
	for _, s := range sides {
		names = append(names, s.who)
	}
	return barChart{"Files read per second (longer is better)", "thousand files/s", names, sets, func(who, set string) (float64, bool) {
		return filesPerSecond(measure.Median(r.find(set, who).wall)) / 1e3, true
	}, "%.0f"}.save(name)
}

func plotBackends(name string, r results) error {
	return barChart{"Time per file by backend (shorter is better)", "µs per file", r.sets(), builds, func(set, build string) (float64, bool) {
		return measure.Median(r.find(set, build).wall) / 1e3, true
	}, "%.1f"}.save(name)
}

func plotFloor(name string, r results) error {
	var names []string
	for _, c := range r.comparisons() {
		if slices.ContainsFunc(r.sets(), func(set string) bool { _, theirs := r.sides(set, c); return theirs != nil }) {
			names = append(names, c)
		}
	}
	if names == nil {
		return nil // no C compiler
	}
	return barChart{"Wall time of the first over that of the second (shorter is better)", "ratio", names, r.sets(), func(c, set string) (float64, bool) {
		ours, theirs := r.sides(set, c)
		if ours == nil || theirs == nil {
			return 0, false
		}
		return paired(ours.wall, theirs.wall, ratio).Median, true
	}, "%.2f"}.save(name)
}

func plotCaches(name string, cold, warm results) error {
	if len(cold.series) == 0 {
		return nil
	}
	var names []string
	for _, s := range warm.series {
		if cold.find(s.data, s.who) != nil {
			names = append(names, s.who)
		}
	}
	set := warm.series[0].data
	caches := map[string]results{"cold caches": cold, "warm caches": warm}
	return barChart{"Time over fileproc's, " + set + " (shorter is better)", "ratio", names, []string{"cold caches", "warm caches"}, func(who, cache string) (float64, bool) {
		r := caches[cache]
		return paired(r.find(set, who).wall, r.series[0].wall, ratio).Median, true
	}, "%.2f"}.save(name)
}

// plotDepth draws the Go loop's time by the depth of its ring, and those of the loops without one for comparison.
func plotDepth(name string, r results) error {
	set := r.series[0].data
	p := newPlot("Time per file of bare loops by depth of the ring, "+set+" (lower is better)", "files that io_uring opens and reads with one call", "µs per file")
	p.Add(plotter.NewGrid())
	var ring, goLoop, cLoop curve
	micros := func(s *series) measure.Spread { return each(s.wall, func(ns float64) float64 { return ns / 1e3 }) }
	plain, _ := r.sides(set, "Go loop / C loop")
	var ticks []plot.Tick
	for depth := 1; ; depth *= 2 {
		ours, theirs := r.sides(set, fmt.Sprintf("Go loop with io_uring, %d deep / C loop", depth))
		if ours == nil || theirs == nil || plain == nil {
			break
		}
		ring.add(float64(depth), micros(ours))
		cLoop.add(float64(depth), micros(theirs))
		goLoop.add(float64(depth), micros(plain))
		ticks = append(ticks, plot.Tick{Value: float64(depth), Label: fmt.Sprint(depth)})
	}
	if ticks == nil {
		return nil // no C compiler, or no io_uring
	}
	for i, c := range []struct {
		name string
		*curve
	}{{"Go loop with io_uring", &ring}, {"Go loop, plain calls", &goLoop}, {"C loop, plain calls", &cLoop}} {
		if err := c.draw(p, c.name, i); err != nil {
			return err
		}
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = 0.8, p.X.Max*1.25
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.05
	p.Legend.YOffs = 8
	return savePlot(p, name)
}

// logTicks marks 1 to 9 of every decade and labels those in labelled.
func logTicks(labelled ...float64) plot.Ticker {
	return plot.TickerFunc(func(lo, hi float64) (ticks []plot.Tick) {
		for decade := math.Pow(10, math.Floor(math.Log10(lo))); decade <= hi; decade *= 10 {
			for m := 1.0; m < 10; m++ {
				if v := m * decade; v >= lo*0.999 && v <= hi*1.001 {
					t := plot.Tick{Value: v}
					if slices.Contains(labelled, m) {
						t.Label = short(math.Round(v*1e6) / 1e6)
					}
					ticks = append(ticks, t)
				}
			}
		}
		return ticks
	})
}

// A curve is a line of medians with bars from minimum to maximum.
type curve struct {
	plotter.XYs
	plotter.YErrors
}

func (c *curve) add(x float64, s measure.Spread) {
	c.XYs = append(c.XYs, plotter.XY{X: x, Y: s.Median})
	c.YErrors = append(c.YErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
}

func (c *curve) draw(p *plot.Plot, name string, i int) error {
	line, points, err := plotter.NewLinePoints(c.XYs)
	if err != nil {
		return err
	}
	errorBars, err := plotter.NewYErrorBars(c)
	if err != nil {
		return err
	}
	line.Width, line.Color, points.Color, errorBars.Color = 2, colors[i], colors[i], colors[i]
	points.Shape, points.Radius = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}}[i], 4
	p.Add(line, points, errorBars)
	p.Legend.Add(name, line, points)
	return nil
}

func plotSizes(name string, r results) error {
	p := newPlot("Time per file in one directory (lower is better)", "files in the directory", "µs per file")
	p.Add(plotter.NewGrid())
	for i, who := range []string{"fileproc", "ReadDir + ReadFile", "charlievieth/fastwalk"} {
		var c curve
		for _, set := range r.sets() {
			s := r.find(set, who)
			n, err := count(set)
			if err != nil {
				return err
			}
			c.add(n, each(s.wall, func(ns float64) float64 { return ns / 1e3 }))
		}
		if err := c.draw(p, who, i); err != nil {
			return err
		}
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks(1), logTicks(1, 2, 5)
	p.X.Min, p.X.Max = 0.8, p.X.Max*1.25
	p.Y.Min, p.Y.Max = p.Y.Min*0.8, p.Y.Max*1.2
	p.Legend.Left, p.Legend.XOffs = true, 8 // below the small directories, where no line is
	return savePlot(p, name)
}

func plotWorkers(name string, r results) error {
	set := r.series[0].data
	p := newPlot("Files read per second by number of workers, "+set, "workers (goroutines)", "files/s")
	p.Add(plotter.NewGrid())
	var ticks []plot.Tick
	for i, who := range []string{"fileproc", "ReadDir + goroutine pool"} {
		var c curve
		for n := 1; ; n++ {
			s := r.find(set, fmt.Sprintf("%s/%d", who, n))
			if s == nil {
				break
			}
			c.add(float64(n), each(s.wall, filesPerSecond))
			if i == 0 {
				ticks = append(ticks, plot.Tick{Value: float64(n), Label: fmt.Sprint(n)})
			}
		}
		if err := c.draw(p, who, i); err != nil {
			return err
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = 0.7, float64(len(ticks))+0.3
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.05
	p.Y.Tick.Marker = shortTicks
	p.Legend.YOffs = 8
	return savePlot(p, name)
}
