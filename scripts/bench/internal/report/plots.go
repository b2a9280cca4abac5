package report

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

var colors = []color.Color{figure.Blue, figure.Orange, figure.Green, figure.Pink}

// dark is the colour of captions, of whiskers on bars, and of the line at 1.
var dark = color.Gray{Y: 0x33}

func savePlot(p *plot.Plot, caption, name string) error {
	return savePlotOf(p, caption, name, 5*vg.Inch)
}

func savePlotOf(p *plot.Plot, caption, name string, height vg.Length) error {
	return figure.SavePlot(name, p, 8*vg.Inch, height, caption, dark)
}

// short formats 100,000 as 100k.
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
	value        func(name, kind string) (s measure.Spread, ok bool)
	label        string // the format of a median
	one          string // if set, the label of a line at 1
	caption      string
}

func (b barChart) save(file string) error {
	p := figure.New(b.title, b.unit, "")
	thick := 13.0 // points, as is everything here that is not a fraction of a group's height
	if len(b.kinds) > 2 {
		thick = 10
	}
	slot := 0.84 / float64(len(b.kinds)) // fraction of a group's height
	group := thick * 1.08 / slot
	p.X.Tick.Marker = shortTicks
	longest := 0.0
	for i := range b.kinds {
		end, err := b.add(p, i, 0.42-slot*(float64(i)+0.5), thick)
		if err != nil {
			return err
		}
		longest = max(longest, end)
	}
	entries := len(b.kinds)
	if b.one != "" {
		line := guide{measure.Spread{Median: 1, Min: 1, Max: 1}, dark, float64(len(b.names)) - 0.5}
		p.Add(line)
		p.Legend.Add(b.one, line)
		p.X.Tick.Marker = ratioTicks
		entries++
	}
	backward := slices.Clone(b.names)
	slices.Reverse(backward)
	p.NominalY(backward...)
	p.Y.Tick.Width = 0
	p.X.Min, p.X.Max = 0, longest*1.12 // leaves room for the label of the longest bar
	p.Y.Min, p.Y.Max = -0.5, float64(len(b.names))-0.5
	if entries > 1 { // the legend is above the bars
		p.Legend.Top = true
		p.Y.Max += (18*float64(entries) - 6) / group
	}
	const around = 110 // points for the title and the axis
	return savePlotOf(p, b.caption, file, vg.Length((p.Y.Max-p.Y.Min)*group+around))
}

// add draws the bars of kind i at the offset beside from the middle of their groups, and returns the end of the longest
// whisker.
func (b barChart) add(p *plot.Plot, i int, beside, thick float64) (longest float64, err error) {
	var values plotter.Values
	var whiskers curve
	labels := plotter.XYLabels{}
	for k, name := range slices.Backward(b.names) {
		s, ok := b.value(name, b.kinds[i])
		values = append(values, s.Median)
		if !ok {
			continue
		}
		y := float64(len(b.names)-1-k) + beside
		whiskers.add(plotter.XY{X: s.Median, Y: y}, s)
		labels.XYs = append(labels.XYs, plotter.XY{X: s.Max, Y: y})
		labels.Labels = append(labels.Labels, english.Sprintf(b.label, s.Median))
		longest = max(longest, s.Max)
	}
	bars, err := plotter.NewBarChart(values, vg.Length(thick))
	if err != nil {
		return 0, err
	}
	bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, beside, colors[i], 0
	errorBars, err := plotter.NewXErrorBars(whiskers)
	if err != nil {
		return 0, err
	}
	errorBars.Color, errorBars.CapWidth = dark, vg.Length(thick/2)
	tags, err := plotter.NewLabels(labels)
	if err != nil {
		return 0, err
	}
	for k := range tags.TextStyle {
		tags.TextStyle[k].Font = font.From(p.X.Tick.Label.Font, 11)
		tags.TextStyle[k].YAlign = text.YCenter
	}
	tags.Offset.X = 4
	p.Add(bars, errorBars, tags)
	if len(b.kinds) > 1 {
		p.Legend.Add(cmp.Or(buildLabels[b.kinds[i]], b.kinds[i]), bars)
	}
	return longest, nil
}

// A guide is a line across the plot at a median, with a band from minimum to maximum.
type guide struct {
	measure.Spread
	color color.Color
	top   float64 // if set, the line is vertical, at a value of X, and ends at this value of Y
}

func (g guide) Plot(c draw.Canvas, p *plot.Plot) {
	trX, trY := p.Transforms(&c)
	if g.top != 0 {
		g.draw(&c, vg.Point{X: trX(g.Median), Y: c.Min.Y}, vg.Point{X: trX(g.Median), Y: trY(g.top)})
		return
	}
	band := c.Rectangle
	band.Min.Y, band.Max.Y = trY(g.Min), trY(g.Max)
	red, green, blue, _ := g.color.RGBA()
	c.SetColor(color.NRGBA64{R: uint16(red), G: uint16(green), B: uint16(blue), A: 0x4000})
	c.Fill(band.Path())
	g.draw(&c, vg.Point{X: c.Min.X, Y: trY(g.Median)}, vg.Point{X: c.Max.X, Y: trY(g.Median)})
}

func (g guide) draw(c *draw.Canvas, from, to vg.Point) {
	c.StrokeLines(draw.LineStyle{Color: g.color, Width: 1.5, Dashes: []vg.Length{5, 3}}, []vg.Point{from, to})
}

func (g guide) Thumbnail(c *draw.Canvas) {
	g.draw(c, vg.Point{X: c.Min.X, Y: c.Center().Y}, vg.Point{X: c.Max.X, Y: c.Center().Y})
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

// ratioTicks are shortTicks with a label at 1.
var ratioTicks = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
	return append(shortTicks(lo, hi), plot.Tick{Value: 1, Label: "1"})
})

// plotPeers draws the fastest side on top.
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
	return barChart{
		title: "Whole files read per second (longer is better)", unit: "thousand files per second", names: names, kinds: sets,
		value: func(who, set string) (measure.Spread, bool) {
			return each(r.find(set, who).wall, func(ns float64) float64 { return filesPerSecond(ns) / 1e3 }), true
		},
		label: "%.0f", caption: r.caption("warm", "All but fileproc read with os.ReadFile.\nBars and numbers: medians"),
	}.save(name)
}

// buildLabels are the builds' labels in a legend.
var buildLabels = map[string]string{
	"linux":   "linux: with io_uring",
	"nouring": "nouring: linux without io_uring",
	"unix":    "unix: as on macOS and BSD",
	"generic": "generic: as on Windows",
}

func plotBackends(name string, r results) error {
	return barChart{
		title: "Time per file of each backend (shorter is better)", unit: "µs per file", names: r.sets(), kinds: builds,
		value: func(set, build string) (measure.Spread, bool) { return each(r.find(set, build).wall, micros), true },
		label: "%.1f", caption: r.caption("warm", "Builds of one program, all of them run on Linux.\nBars and numbers: medians"),
	}.save(name)
}

func plotFloor(name string, r results) error {
	var names []string
	for _, c := range r.comparisons() {
		measured := slices.ContainsFunc(r.sets(), func(set string) bool { _, ok := r.timeRatio(set, c); return ok })
		if measured && !strings.HasSuffix(c, "os.ReadDir") { // os.ReadDir is not a floor
			names = append(names, c)
		}
	}
	if names == nil {
		return nil // no C compiler
	}
	return barChart{
		title: "Time of fileproc relative to the bare system calls in C (shorter is better)", unit: "wall time / wall time of the C program", names: names, kinds: r.sets(),
		value: func(c, set string) (measure.Spread, bool) { return r.timeRatio(set, c) },
		label: "%.2f", one: "1: as fast as the C program",
		caption: r.caption("warm", "whole: each file is read; prefix: its first 2,048 bytes; stat: its size and time; ReadDir: names alone.\n"+
			"The C program makes plain system calls and does nothing else, with one thread per core.\nBars and numbers: medians of the ratios"),
	}.save(name)
}

func plotCaches(name string, cold, warm results) error {
	if len(cold.series) == 0 {
		return nil
	}
	var names []string
	for _, s := range warm.series[1:] {
		if cold.find(s.data, s.who) != nil {
			names = append(names, s.who)
		}
	}
	set := warm.series[0].data
	caches := map[string]results{"cold caches": cold, "warm caches": warm}
	both := results{series: slices.Concat(cold.series, warm.series), machine: warm.machine}
	return barChart{
		title: "Time relative to fileproc, " + set + " (shorter is better)", unit: "wall time / wall time of fileproc", names: names, kinds: []string{"cold caches", "warm caches"},
		value: func(who, cache string) (measure.Spread, bool) {
			r := caches[cache]
			return paired(r.find(set, who).wall, r.series[0].wall, ratio), true
		},
		label: "%.2f", one: "1: as fast as fileproc with its defaults",
		caption: both.caption("warm, or emptied before each pass", "Bars and numbers: medians of the ratios"),
	}.save(name)
}

// plotDepth draws the Go loop with a ring by the ring's depth. Each time is relative to that of the C loop in the same round.
// The loops without a ring have no depth, so they are horizontal lines.
func plotDepth(name string, r results) error {
	set := r.series[0].data
	p := figure.New("Bare loops: time relative to the C loop, "+set+" (lower is better)", "depth of the ring: files that one io_uring call opens and reads", "wall time / wall time of the C loop")
	p.Add(plotter.NewGrid())
	var ring curve
	var ticks []plot.Tick
	for depth := 1; ; depth *= 2 {
		s, ok := r.timeRatio(set, fmt.Sprintf("Go loop with io_uring, %d deep / C loop", depth))
		if !ok {
			break
		}
		at := float64(len(ticks))
		ring.add(plotter.XY{X: at, Y: s.Median}, s)
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprint(depth)})
	}
	plain, ok := r.timeRatio(set, "Go loop / C loop")
	if ticks == nil || !ok {
		return nil // no C compiler, or no io_uring
	}
	one := guide{measure.Spread{Median: 1, Min: 1, Max: 1}, dark, 0}
	goLoop := guide{plain, colors[1], 0}
	p.Add(goLoop, one)
	if err := ring.draw(p, "Go loop with io_uring", 0); err != nil {
		return err
	}
	p.Legend.Add("Go loop, plain calls (band: minimum to maximum)", goLoop)
	p.Legend.Add("1: C loop, plain calls", one)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(ticks), ratioTicks
	p.X.Min, p.X.Max = -0.3, float64(len(ticks))-0.7
	p.Y.Min, p.Y.Max = 0, max(p.Y.Max, plain.Max)*1.05
	p.Legend.YOffs = 8
	return savePlot(p, r.caption("warm", "The loops list, open, read and close, and do nothing else, with one thread per core.\nPoints: medians of the ratios"), name)
}

// logTicks marks 1 to 9 in every decade and labels those in labelled.
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

// A curve holds the medians of points or bars, and whiskers from minimum to maximum.
type curve struct {
	plotter.XYs
	plotter.YErrors
}

// add adds a spread whose median is drawn at the point at.
func (c *curve) add(at plotter.XY, s measure.Spread) {
	c.XYs = append(c.XYs, at)
	c.YErrors = append(c.YErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
}

// XError returns the whisker of a horizontal bar, whose median is a value of X.
func (c curve) XError(i int) (low, high float64) { return c.YError(i) }

func (c curve) draw(p *plot.Plot, name string, i int) error {
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
	p := figure.New("Time per file in one directory, by number of files (lower is better)", "files in the directory", "µs per file")
	p.Add(plotter.NewGrid())
	for i, who := range []string{"fileproc", "ReadDir + ReadFile", "charlievieth/fastwalk"} {
		var c curve
		for _, set := range r.sets() {
			s := r.find(set, who)
			n, err := count(set)
			if err != nil {
				return err
			}
			spread := each(s.wall, micros)
			beside := math.Pow(1.08, float64(i-1)) // an offset, so that no whisker hides another
			c.add(plotter.XY{X: n * beside, Y: spread.Median}, spread)
		}
		if err := c.draw(p, who, i); err != nil {
			return err
		}
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks(1), logTicks(1, 2, 5)
	p.X.Min, p.X.Max = 0.8, p.X.Max*1.25
	p.Y.Min, p.Y.Max = p.Y.Min*0.8, p.Y.Max*1.2
	p.Legend.Left, p.Legend.XOffs = true, 8 // below the points of small directories, where there is no curve
	return savePlot(p, r.caption("warm", "Points: medians"), name)
}

func plotWorkers(name string, r results) error {
	set := r.series[0].data
	p := figure.New("Files read per second by number of workers, "+set+" (higher is better)", "workers (goroutines)", "files/s")
	p.Add(plotter.NewGrid())
	var ticks []plot.Tick
	for i, who := range []string{"fileproc", "ReadDir + goroutine pool"} {
		var c curve
		for n := 1; ; n++ {
			s := r.find(set, fmt.Sprintf("%s/%d", who, n))
			if s == nil {
				break
			}
			spread := each(s.wall, filesPerSecond)
			c.add(plotter.XY{X: float64(n), Y: spread.Median}, spread)
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
	return savePlot(p, r.caption("warm", "Points: medians"), name)
}
