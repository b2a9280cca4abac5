// Package figure has what the plots of several commands share: colours, fonts, the caption and the files.
package figure

import (
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/scripts/internal/measure"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colors are those of the kinds of bars, or of the curves, of a figure: blue, orange, green, pink and sky, which people with a colour
// vision deficiency can distinguish too.
var Colors = []color.Color{color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}}

// dark is the colour of captions, of whiskers on bars, and of the line at 1.
var dark = color.Gray{Y: 0x33}

const margin = vg.Length(10) // between what a figure shows and its edge

// New returns an empty plot with a title and the labels of its axes.
func New(title, x, y string) *plot.Plot {
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
	p.Legend.XOffs = -8 // the legend's lines are wider than the space that the library reserves
	return p
}

// SavePlot saves p with the caption below it. The height is that of p alone.
func SavePlot(name string, p *plot.Plot, width, height vg.Length, caption string) error {
	small := p.X.Tick.Label
	small.Font.Size, small.Color, small.XAlign, small.YAlign = 11, dark, text.XLeft, text.YBottom
	below := small.Height(caption) + 2*margin
	return Save(name, width, height+below, func(c draw.Canvas) {
		c.FillText(small, vg.Point{X: margin, Y: margin}, caption)
		p.Draw(draw.Crop(c, margin, -margin, below, -margin))
	})
}

// Save writes name.svg and name.png, or only the one that name is, with what paint draws on a white canvas.
func Save(name string, width, height vg.Length, paint func(draw.Canvas)) error {
	formats := []string{"svg", "png"}
	if format := strings.TrimPrefix(filepath.Ext(name), "."); slices.Contains(formats, format) {
		name, formats = strings.TrimSuffix(name, "."+format), []string{format}
	}
	for _, format := range formats {
		canvas, err := draw.NewFormattedCanvas(width, height, format)
		if err != nil {
			return err
		}
		c := draw.New(canvas)
		c.SetColor(color.White) // the margin too, because a page may be dark
		c.Fill(c.Rectangle.Path())
		paint(c)
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

// Bars has a group of horizontal bars for each name, from top to bottom, with one bar of each kind and a whisker from minimum to
// maximum.
type Bars struct {
	Title, Unit  string
	Names, Kinds []string
	Value        func(name, kind string) (s measure.Spread, ok bool)
	Label        string // the format of a median
	One          string // if set, the label of a line at 1, which no number crosses
	Caption      string
}

func (b Bars) Save(file string) error {
	p := New(b.Title, b.Unit, "")
	thick := 13.0 // points, as is everything here that is not a fraction of a group's height
	if len(b.Kinds) > 2 {
		thick = 10
	}
	slot := 0.84 / float64(len(b.Kinds)) // fraction of a group's height
	group := thick * 1.08 / slot
	longest, entries := 0.0, len(b.Kinds)
	if b.One != "" {
		longest, entries, p.X.Tick.Marker = 1, entries+1, ratioTicks
	}
	for i := range b.Kinds {
		end, err := b.add(p, i, 0.42-slot*(float64(i)+0.5), thick)
		if err != nil {
			return err
		}
		longest = max(longest, end)
	}
	if b.One != "" {
		line := &plotter.Line{XYs: plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(b.Names)) - 0.5}},
			LineStyle: draw.LineStyle{Color: dark, Width: 1.5, Dashes: []vg.Length{5, 3}}}
		p.Add(line)
		p.Legend.Add(b.One, line)
	}
	backward := slices.Clone(b.Names)
	slices.Reverse(backward)
	p.NominalY(backward...)
	p.Y.Tick.Width = 0
	p.X.Min, p.X.Max = 0, longest*1.12 // leaves room for the label of the longest bar
	p.Y.Min, p.Y.Max = -0.5, float64(len(b.Names))-0.5
	if entries > 1 { // the legend is above the bars
		p.Legend.Top = true
		p.Y.Max += (18*float64(entries) - 6) / group
	}
	const around = 110 // points for the title and the axis
	return SavePlot(file, p, 8*vg.Inch, vg.Length((p.Y.Max-p.Y.Min)*group+around), b.Caption)
}

// add draws the bars of kind i at the offset beside from the middle of their groups, and returns the end of the longest
// whisker.
func (b Bars) add(p *plot.Plot, i int, beside, thick float64) (longest float64, err error) {
	var values plotter.Values
	var whiskers struct { // medians, from minimum to maximum
		plotter.XYs
		plotter.XErrors
	}
	labels := plotter.XYLabels{}
	for k, name := range slices.Backward(b.Names) {
		s, ok := b.Value(name, b.Kinds[i])
		values = append(values, s.Median)
		if !ok {
			continue
		}
		y, end := float64(len(b.Names)-1-k)+beside, s.Max
		whiskers.XYs = append(whiskers.XYs, plotter.XY{X: s.Median, Y: y})
		whiskers.XErrors = append(whiskers.XErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
		if b.One != "" {
			end = max(end, 1)
		}
		labels.XYs = append(labels.XYs, plotter.XY{X: end, Y: y})
		labels.Labels = append(labels.Labels, measure.English.Sprintf(b.Label, s.Median))
		longest = max(longest, end)
	}
	if len(labels.XYs) == 0 {
		return 0, nil
	}
	bars, err := plotter.NewBarChart(values, vg.Length(thick))
	if err != nil {
		return 0, err
	}
	bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, beside, Colors[i], 0
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
	if len(b.Kinds) > 1 {
		p.Legend.Add(b.Kinds[i], bars)
	}
	return longest, nil
}

// ratioTicks have a label at 1.
var ratioTicks = plot.TickerFunc(func(lo, hi float64) []plot.Tick {
	return append(plot.DefaultTicks{}.Ticks(lo, hi), plot.Tick{Value: 1, Label: "1"})
})
