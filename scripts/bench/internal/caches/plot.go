//go:build linux

package caches

import (
	"fmt"
	"image/color"
	"runtime"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/fileproc/fileproc/scripts/internal/figure"
	"github.com/fileproc/fileproc/scripts/internal/measure"
)

var colors = map[string]color.Color{
	ours:        figure.Blue,
	oursChecked: figure.Sky,
	theirs:      figure.Orange,
	corfsName:   figure.Pink,
}

// plotResults draws a group of bars for each case, the first on top.
func plotResults(results []*result, name string) error {
	p := figure.New("Time to open, read and close a file (shorter is better)", "ns", "")
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 11, 11
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
	return figure.SavePlot(name, p, 9*vg.Inch, vg.Length((p.Y.Max-p.Y.Min)*group+110), caption, color.Black)
}
