// Package figure has what the plots of several commands share: colours, fonts, the caption and the files.
package figure

import (
	"errors"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colours that people with a colour vision deficiency can distinguish too.
var (
	Blue   = color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}
	Orange = color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}
	Green  = color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}
	Pink   = color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}
	Sky    = color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}
)

// Colors are those of the kinds of bars, or of the curves, of a figure.
var Colors = []color.Color{Blue, Orange, Green, Pink, Sky}

// Dark is the colour of captions, of whiskers on bars, and of the line at 1.
var Dark = color.Gray{Y: 0x33}

// Margin is between what a figure shows and its edge.
const Margin = vg.Length(10)

// Formats are the file name extensions of the files that Save writes.
var Formats = []string{"svg", "png"}

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
func SavePlot(name string, p *plot.Plot, width, height vg.Length, caption string, ink color.Color) error {
	small := p.X.Tick.Label
	small.Font.Size, small.Color, small.XAlign, small.YAlign = 11, ink, text.XLeft, text.YBottom
	below := small.Height(caption) + 2*Margin
	return Save(name, width, height+below, func(c draw.Canvas) {
		c.FillText(small, vg.Point{X: Margin, Y: Margin}, caption)
		p.Draw(draw.Crop(c, Margin, -Margin, below, -Margin))
	})
}

// Save writes name.svg and name.png, or only the one that name is, with what paint draws on a white canvas.
func Save(name string, width, height vg.Length, paint func(draw.Canvas)) error {
	formats := Formats
	if format := strings.TrimPrefix(filepath.Ext(name), "."); slices.Contains(Formats, format) {
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
