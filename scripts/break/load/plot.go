package main

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fileproc/fileproc/scripts/internal/figure"
)

// draw draws the latencies' percentiles to name.svg and name.png: a colour for each operation, dashes for the other side.
func (r *outcome) draw(name string) error {
	p := figure.New(fmt.Sprintf("Latency of a mixed load through %s and through %s", r.Sides[0], r.Sides[1]), "percentile", "ms")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 8
	p.Add(plotter.NewGrid())
	var ticks plot.ConstantTicks
	for _, percent := range percentiles {
		ticks = append(ticks, plot.Tick{Value: nines(percent), Label: fmt.Sprint(percent)})
	}
	p.X.Tick.Marker = ticks
	for op, opName := range opNames {
		for i, side := range r.Sides {
			m := r.Levels[0].Sides[i][opName]
			if m["med"] == 0 {
				continue
			}
			var points plotter.XYs
			for _, percent := range percentiles {
				points = append(points, plotter.XY{X: nines(percent), Y: m[percentName(percent)]})
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return err
			}
			line.Color, line.Width = figure.Colors[op], 2
			dots.Color, dots.Shape = figure.Colors[op], draw.CircleGlyph{}
			if i > 0 {
				line.Dashes = []vg.Length{6, 3}
			}
			p.Add(line, dots)
			p.Legend.Add(opName+", "+side, line, dots)
		}
	}
	// Whole decades, so that there are labels, and room for the legend.
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, 1+math.Ceil(math.Log10(p.Y.Max)))
	caption := strings.NewReplacer(", GOMAXPROCS", "\nGOMAXPROCS", ", stages", "\nstages").Replace(r.About)
	return figure.SavePlot(name, p, 9*vg.Inch, 6*vg.Inch, caption)
}

// nines spreads the high percentiles: 90, 99 and 99.9 are at 1, 2 and 3.
func nines(percent float64) float64 { return -math.Log10(1 - percent/100) }
