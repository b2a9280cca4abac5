package report

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colors are those of the kinds of bars: blue, orange, green, pink and sky, which people with a colour vision deficiency can
// distinguish too.
var colors = []color.Color{color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}}

// bars has a group of horizontal bars for each name, from top to bottom, with one bar of each kind and a whisker from minimum to
// maximum.
type bars struct {
	title, unit  string
	names, kinds []string
	value        func(name, kind string) (s measure.Spread, ok bool)
	label        string // the format of a median
	one          string // if set, the label of a line at 1, which no number crosses
	caption      string
}

// save draws them into a file, whose name says in which format.
func (b bars) save(file string) error {
	// Points, but for groups, the part of a group's height that has bars.
	const thick, groups, around, margin = 12, 0.8, 100, 10
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text = b.title, b.unit
	p.Title.Padding = 8
	top, longest := float64(len(b.names))-0.5, 0.0
	if b.one != "" {
		line := &plotter.Line{XYs: plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: top}}, LineStyle: draw.LineStyle{Width: 1.5, Dashes: []vg.Length{5, 3}}}
		p.Add(line)
		p.Legend.Add(b.one, line)
		longest = 1
	}
	for i, kind := range b.kinds {
		values, numbers := make(plotter.Values, len(b.names)), plotter.XYLabels{}
		var whiskers struct { // medians, from minimum to maximum
			plotter.XYs
			plotter.XErrors
		}
		beside := groups * (0.5 - (float64(i)+0.5)/float64(len(b.kinds)))
		for k, name := range b.names {
			s, ok := b.value(name, kind)
			if !ok {
				continue
			}
			row := len(b.names) - 1 - k
			values[row] = s.Median
			y, end := float64(row)+beside, s.Max
			if b.one != "" {
				end = max(end, 1)
			}
			longest = max(longest, end)
			whiskers.XYs = append(whiskers.XYs, plotter.XY{X: s.Median, Y: y})
			whiskers.XErrors = append(whiskers.XErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
			numbers.XYs = append(numbers.XYs, plotter.XY{X: end, Y: y})
			numbers.Labels = append(numbers.Labels, measure.English.Sprintf(b.label, s.Median))
		}
		if numbers.XYs == nil {
			continue
		}
		chart := fail.Must(plotter.NewBarChart(values, vg.Length(thick)))
		chart.Horizontal, chart.XMin, chart.Color, chart.LineStyle.Width = true, beside, colors[i], 0
		labels := fail.Must(plotter.NewLabels(numbers))
		labels.Offset.X = 4
		for k := range labels.TextStyle {
			labels.TextStyle[k].Font, labels.TextStyle[k].YAlign = p.X.Tick.Label.Font, text.YCenter
		}
		ranges := fail.Must(plotter.NewXErrorBars(whiskers))
		ranges.Color = color.Gray{Y: 0x33} // seen on each of the colours
		p.Add(chart, ranges, labels)
		if len(b.kinds) > 1 {
			p.Legend.Add(kind, chart)
		}
	}
	backward := slices.Clone(b.names)
	slices.Reverse(backward)
	p.NominalY(backward...)
	p.Legend.Top, p.Legend.XOffs = true, -8
	height := thick * 1.08 * float64(len(b.kinds)) / groups
	p.X.Min, p.X.Max = 0, longest*1.12                           // leaves room for the number of the longest bar
	p.Y.Min, p.Y.Max = -0.5, top+16*float64(len(b.kinds))/height // and for the legend

	small := p.X.Tick.Label
	small.Font.Size, small.XAlign, small.YAlign = 9, text.XLeft, text.YBottom
	below := small.Height(b.caption) + 2*margin
	canvas := fail.Must(draw.NewFormattedCanvas(8*vg.Inch, vg.Length((p.Y.Max-p.Y.Min)*height+around)+below, strings.TrimPrefix(filepath.Ext(file), ".")))
	c := draw.New(canvas)
	c.SetColor(color.White) // of the margin, too
	c.Fill(c.Rectangle.Path())
	c.FillText(small, vg.Point{X: margin, Y: margin}, b.caption)
	p.Draw(draw.Crop(c, margin, -margin, below, -margin))
	var out bytes.Buffer
	fail.Must(canvas.WriteTo(&out))
	return os.WriteFile(file, out.Bytes(), 0o644)
}
