package main

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fileproc/fileproc/scripts/internal/figure"
)

var colors = []color.Color{figure.Blue, figure.Orange}

// draw draws the latencies' percentiles to name.svg and name.png: a part for each operation, a line for each side.
func (r *record) draw(name string) error {
	const columns = 2
	parts := make([][]*plot.Plot, operations/columns)
	for op, opName := range opNames {
		p, err := r.drawOperation(opName)
		if err != nil {
			return err
		}
		parts[op/columns] = append(parts[op/columns], p)
	}
	heading := fmt.Sprintf("Latency of a mixed load through %s and through %s", r.Sides[0], r.Sides[1])
	title := parts[0][0].Title.TextStyle
	small := parts[0][0].X.Tick.Label
	small.XAlign, small.YAlign = text.XLeft, text.YBottom
	caption := strings.Replace(fmt.Sprint(r.Machine, "\n", &r.Load), ", GOMAXPROCS", "\nGOMAXPROCS", 1)
	return figure.Save(name, 9*vg.Inch, 8*vg.Inch, func(c draw.Canvas) {
		inside := draw.Crop(c, figure.Margin, -figure.Margin, figure.Margin, -figure.Margin)
		title.XAlign, title.YAlign = draw.XCenter, draw.YTop
		c.FillText(title, vg.Point{X: inside.Center().X, Y: inside.Max.Y}, heading)
		c.FillText(small, inside.Min, caption)
		tiles := draw.Tiles{Rows: len(parts), Cols: columns, PadX: 2 * figure.Margin, PadY: 2 * figure.Margin}
		for i, row := range plot.Align(parts, tiles, draw.Crop(inside, 0, 0, small.Height(caption)+figure.Margin, -3*figure.Margin)) {
			for k, tile := range row {
				parts[i][k].Draw(tile)
			}
		}
	})
}

func (r *record) drawOperation(op string) (*plot.Plot, error) {
	p := figure.New(op, "percentile", "ms")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 8
	p.Add(plotter.NewGrid())
	var ticks plot.ConstantTicks
	for _, percent := range percentiles {
		ticks = append(ticks, plot.Tick{Value: nines(percent), Label: fmt.Sprint(percent)})
	}
	p.X.Tick.Marker = ticks
	for i, side := range r.Sides {
		m := r.Levels[0].Sides[i][op]
		if m["med"] == 0 {
			continue
		}
		var points plotter.XYs
		for _, percent := range percentiles {
			points = append(points, plotter.XY{X: nines(percent), Y: m[percentName(percent)]})
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colors[i], 2
		dots.Color, dots.Shape = colors[i], draw.CircleGlyph{}
		if i > 0 {
			line.Dashes = []vg.Length{6, 3}
		}
		p.Add(line, dots)
		p.Legend.Add(side, line, dots)
	}
	// Whole decades, so that there are labels.
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	return p, nil
}

// nines spreads the high percentiles: 90, 99 and 99.9 are at 1, 2 and 3.
func nines(percent float64) float64 { return -math.Log10(1 - percent/100) }
