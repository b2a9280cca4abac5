package main

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"runtime"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fileproc/fileproc/scripts/internal/measure"
)

// Colours that people with a colour vision deficiency can distinguish too.
var colors = map[string]color.Color{
	ours:        color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
	oursChecked: color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
	theirs:      color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	corfsName:   color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// plotResults draws a group of bars for each case, the first on top.
func plotResults(results []*result, name string) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text = "Time to open, read and close a file (shorter is better)", "ns"
	p.Title.TextStyle.Font.Size, p.Title.Padding = 16, 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = 13, 11
	}
	p.Legend.TextStyle.Font.Size, p.Legend.Padding, p.Legend.XOffs = 12, 3, -8
	const thick, slot = 9.0, 0.21 // points; fraction of the height of a group
	longest := 0.0
	for i, s := range sides[:4] {
		beside := 0.42 - slot*(float64(i)+0.5)
		values := make(plotter.Values, len(results))
		labels := plotter.XYLabels{}
		for k, r := range results {
			m, y := r.find(s.name), len(results)-1-k
			if m == nil {
				continue
			}
			values[y] = measure.Median(m.ns)
			longest = max(longest, values[y])
			labels.XYs = append(labels.XYs, plotter.XY{X: values[y], Y: float64(y) + beside})
			labels.Labels = append(labels.Labels, english.Sprintf("%.0f", values[y]))
		}
		bars, err := plotter.NewBarChart(values, thick)
		if err != nil {
			return err
		}
		bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, beside, colors[s.name], 0
		tags, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		for k := range tags.TextStyle {
			tags.TextStyle[k].Font, tags.TextStyle[k].YAlign = font.From(p.X.Tick.Label.Font, 10), text.YCenter
		}
		tags.Offset.X = 4
		p.Add(bars, tags)
		p.Legend.Add(s.name, bars)
	}
	names := make([]string, len(results))
	for k, r := range results {
		names[len(results)-1-k] = r.of.name
	}
	p.NominalY(names...)
	p.Y.Tick.Width = 0
	p.Legend.Top = true
	const group = thick * 1.08 / slot
	p.X.Min, p.X.Max = 0, longest*1.12
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5+66/group
	caption := fmt.Sprintf("One goroutine unless it says otherwise; the source is in memory; medians. checked: each hit is compared with the file.\n"+
		"%s %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	return save(p, caption, name, vg.Length((p.Y.Max-p.Y.Min)*group+110))
}

func save(p *plot.Plot, caption, name string, height vg.Length) error {
	const width, margin = 9 * vg.Inch, vg.Length(10)
	small := p.X.Tick.Label
	small.Font.Size, small.XAlign, small.YAlign = 11, text.XLeft, text.YBottom
	below := small.Height(caption) + 2*margin
	for _, format := range []string{"svg", "png"} {
		canvas, err := draw.NewFormattedCanvas(width, height+below, format)
		if err != nil {
			return err
		}
		c := draw.New(canvas)
		c.SetColor(color.White) // the margin too, because a page may be dark
		c.Fill(c.Rectangle.Path())
		c.FillText(small, vg.Point{X: margin, Y: margin}, caption)
		p.Draw(draw.Crop(c, margin, -margin, below, -margin))
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
