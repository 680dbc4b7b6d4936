package main

import (
	"bytes"
	"context"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Colours that everybody can tell apart (Okabe and Ito, 2008), on white.
var (
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange = color.RGBA{0xf0, 0xb4, 0x2a, 0xff}
	black  = color.RGBA{0x1f, 0x23, 0x28, 0xff}
	grey   = color.RGBA{0x59, 0x63, 0x6e, 0xff}
	light  = color.RGBA{0xd8, 0xde, 0xe4, 0xff}
)

// Lengths in points. A picture is 900 pixels wide.
const (
	width     = 675
	margin    = 12
	titles    = 62 // title, note and legend
	subtitles = 16 // of columns
	rowHeight = 68
	rowTitle  = 17
	axis      = 34 // of time
	yLabel    = 20
	between   = 18 // columns
)

func style(size float64, c color.Color, x text.XAlignment) text.Style {
	f := font.From(plot.DefaultFont, vg.Points(size))
	f.Variant = "Sans"
	return text.Style{Color: c, Font: f, XAlign: x, YAlign: text.YBottom, Handler: plot.DefaultTextHandler}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = xfont.WeightBold
	return s
}

// draw plays a pattern through every algorithm and writes its picture.
func draw(ctx context.Context, w io.Writer, p pattern, format string) error {
	top := vg.Length(titles)
	if len(p.columns) > 1 {
		top += subtitles
	}
	height := margin + top + rowHeight*vg.Length(len(algorithms)) + axis
	canvas, err := vgdraw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	page := vgdraw.NewCanvas(canvas, width, height)
	page.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	page = vgdraw.Crop(page, margin, -margin, 0, -margin)

	page.FillText(bold(style(13, black, text.XLeft)), vg.Point{X: page.Min.X, Y: page.Max.Y - 13}, p.title)
	page.FillText(style(9, grey, text.XLeft), vg.Point{X: page.Min.X, Y: page.Max.Y - 29}, p.note)
	legend(page, p, page.Max.Y-48)

	label := style(9, grey, text.XCenter)
	label.Rotation = math.Pi / 2
	label.YAlign = text.YTop
	page.FillText(label, vg.Point{X: page.Min.X, Y: axis + rowHeight*vg.Length(len(algorithms))/2}, "requests per "+unit(p.bin))
	page = vgdraw.Crop(page, yLabel, 0, 0, 0)

	columnWidth := (page.Max.X - page.Min.X - between*vg.Length(len(p.columns)-1)) / vg.Length(len(p.columns))
	for i, c := range p.columns {
		left := page.Min.X + vg.Length(i)*(columnWidth+between)
		cell := vgdraw.Canvas{Canvas: page.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: page.Min.Y}, Max: vg.Point{X: left + columnWidth, Y: page.Max.Y - top},
		}}
		if c.title != "" {
			page.FillText(bold(style(10, black, text.XLeft)), vg.Point{X: left, Y: cell.Max.Y + 4}, c.title)
		}
		if err := drawColumn(ctx, cell, p, c, i == 0); err != nil {
			return err
		}
	}
	return write(w, canvas)
}

// write adds fonts for machines that do not have the one that was measured, whose
// letters have the same widths, and leaves out what goes without saying.
func write(w io.Writer, canvas vg.CanvasWriterTo) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	_, err := strings.NewReplacer(
		"font-family:Liberation Sans;font-variant:normal;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;",
		"font-weight:normal;", "",
		"font-style:normal;", "",
	).WriteString(w, b.String())
	return err
}

func unit(bin time.Duration) string {
	if bin == time.Second {
		return "second"
	}
	return bin.String()
}

// legend tells what the colours mean.
func legend(page vgdraw.Canvas, p pattern, y vg.Length) {
	x := page.Min.X
	entry := func(words string, sample func(from, to vg.Point)) {
		sample(vg.Point{X: x, Y: y}, vg.Point{X: x + 14, Y: y + 8})
		s := style(9, black, text.XLeft)
		page.FillText(s, vg.Point{X: x + 19, Y: y}, words)
		x += 19 + s.Width(words) + 18
	}
	box := func(c color.Color) func(from, to vg.Point) {
		return func(from, to vg.Point) {
			page.FillPolygon(c, []vg.Point{from, {X: to.X, Y: from.Y}, to, {X: from.X, Y: to.Y}})
		}
	}
	line := func(s vgdraw.LineStyle) func(from, to vg.Point) {
		return func(from, to vg.Point) {
			middle := (from.Y + to.Y) / 2
			page.StrokeLine2(s, from.X, middle, to.X, middle)
		}
	}
	whose := ""
	for _, c := range p.columns {
		if c.eyes != nil {
			whose = ", of the polite one"
		}
	}
	entry("admitted"+whose, box(blue))
	entry("refused"+whose, box(orange))
	if whose != "" {
		entry("admitted, of the greedy one", line(otherLine))
		return
	}
	entry("departing from the leaky bucket's queue", line(departureLine))
	if p.lines {
		entry("the limit's rate", line(rateLine))
	}
}

var (
	rateLine      = vgdraw.LineStyle{Color: black, Width: 0.7, Dashes: []vg.Length{3, 2}}
	departureLine = vgdraw.LineStyle{Color: black, Width: 1.4}
	otherLine     = vgdraw.LineStyle{Color: black, Width: 1}
	gridLine      = vgdraw.LineStyle{Color: light, Width: 0.5}
	axisLine      = vgdraw.LineStyle{Color: grey, Width: 0.5}
)

// drawColumn draws a row for each algorithm.
func drawColumn(ctx context.Context, cell vgdraw.Canvas, p pattern, c column, named bool) error {
	small := style(8.5, grey, text.XRight)
	for i, a := range algorithms {
		limit, err := p.limit(a)
		if err != nil {
			return err
		}
		all, err := play(ctx, p, c, limit)
		if err != nil {
			return err
		}
		row := cell
		row.Max.Y = cell.Max.Y - vg.Length(i*rowHeight)
		row.Min.Y = row.Max.Y - rowHeight
		if named {
			row.FillText(bold(style(9.5, black, text.XLeft)), vg.Point{X: row.Min.X, Y: row.Max.Y - 12}, p.words(a))
		}
		row.FillText(small, vg.Point{X: row.Max.X, Y: row.Max.Y - 12}, p.sum(p, c, all))
		row.Max.Y -= rowTitle
		panel(row, p, count(p, c, all), a == leaky && c.eyes == nil, i == len(algorithms)-1)
	}
	return nil
}

// panel draws one algorithm's bins.
func panel(row vgdraw.Canvas, p pattern, of counts, queue, last bool) {
	chart := plot.New()
	chart.BackgroundColor = color.Transparent
	chart.X.Min, chart.X.Max = 0, p.span.Seconds()
	chart.Y.Min, chart.Y.Max = 0, p.top
	chart.X.Padding, chart.Y.Padding = 0, 2
	chart.X.LineStyle, chart.Y.LineStyle = axisLine, vgdraw.LineStyle{}
	chart.Y.Tick.LineStyle = vgdraw.LineStyle{}
	chart.Y.Tick.Length = 2
	chart.Y.Tick.Label = style(8, grey, text.XRight)
	chart.Y.Tick.Label.YAlign = text.YCenter
	chart.X.Tick.LineStyle = axisLine
	chart.X.Tick.Length = 3
	var marks, seconds plot.ConstantTicks
	for _, v := range p.ticks {
		marks = append(marks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	for at := time.Duration(0); at <= p.span; at += p.tick {
		seconds = append(seconds, plot.Tick{Value: at.Seconds()}) // the labels come below, for the last row alone
	}
	chart.Y.Tick.Marker, chart.X.Tick.Marker = marks, seconds
	chart.Add(bars{p, of, queue})
	chart.Draw(row)
	if !last {
		return
	}
	label := style(8, grey, text.XCenter)
	data := chart.DataCanvas(row)
	x, _ := chart.Transforms(&data)
	for _, t := range seconds {
		row.FillText(label, vg.Point{X: x(t.Value), Y: row.Min.Y - 10}, strconv.FormatFloat(t.Value, 'f', -1, 64))
	}
	label.Font.Size = 9
	row.FillText(label, vg.Point{X: (data.Min.X + data.Max.X) / 2, Y: row.Min.Y - 24}, "seconds")
}

// bars is a plotter of what a pattern's bins hold.
type bars struct {
	pattern
	counts

	queue bool // draw departures
}

// Plot implements plot.Plotter.
func (b bars) Plot(c vgdraw.Canvas, chart *plot.Plot) {
	x, y := chart.Transforms(&c)
	for _, v := range b.ticks {
		c.StrokeLine2(gridLine, c.Min.X, y(v), c.Max.X, y(v))
	}
	sums := make([]float64, len(b.admitted))
	for i, n := range b.admitted {
		sums[i] = n + b.refused[i]
	}
	width := 1.0
	if b.numbers {
		width = 0.6 // bars that can be told apart
	}
	shape := func(low, high []float64, fill color.Color) {
		for _, pts := range outline(low, high, width, b.bin.Seconds()) {
			for i := range pts {
				pts[i] = vg.Point{X: x(float64(pts[i].X)), Y: y(float64(pts[i].Y))}
			}
			c.FillPolygon(fill, pts)
		}
	}
	shape(nil, b.admitted, blue)
	shape(b.admitted, sums, orange)
	if b.lines {
		rate := float64(b.rate) / b.period.Seconds() * b.bin.Seconds()
		c.StrokeLine2(rateLine, c.Min.X, y(rate), c.Max.X, y(rate))
	}
	stroke := func(values []float64, s vgdraw.LineStyle) {
		for _, pts := range outline(nil, values, 1, b.bin.Seconds()) {
			for i := range pts {
				pts[i] = vg.Point{X: x(float64(pts[i].X)), Y: y(float64(pts[i].Y))}
			}
			if last := len(pts) - 1; pts[last].X >= c.Max.X {
				pts = pts[:last] // it goes on
			}
			c.StrokeLines(s, pts)
		}
	}
	if b.queue {
		stroke(b.departed, departureLine)
	}
	stroke(b.others, otherLine)
	if b.numbers {
		s := bold(style(8.5, blue, text.XCenter))
		for i, n := range b.admitted {
			middle := (float64(i) + 0.5) * b.bin.Seconds()
			top := sums[i]
			if b.queue {
				top = max(top, b.departed[i])
			}
			c.FillText(s, vg.Point{X: x(middle), Y: y(top) + 2}, strconv.FormatFloat(n, 'f', -1, 64))
		}
	}
}

// outline is the steps of a histogram that stands on low, or on zero, in units of the
// axes: one polygon for each run of bins that are not empty, or for each bin if they are
// narrower than that. Where it stands on zero it is no more than its upper edge.
func outline(low, high []float64, width, bin float64) (polygons [][]vg.Point) {
	base := func(i int) float64 {
		if low == nil {
			return 0
		}
		return low[i]
	}
	point := func(x, y float64) vg.Point { return vg.Point{X: vg.Length(x), Y: vg.Length(y)} }
	for i := 0; i < len(high); {
		if high[i] <= base(i) {
			i++
			continue
		}
		end := i + 1
		for width == 1 && end < len(high) && high[end] > base(end) {
			end++
		}
		var upper, lower []vg.Point
		pad := (1 - width) / 2
		for j := i; j < end; j++ {
			from, to := (float64(j)+pad)*bin, (float64(j)+1-pad)*bin
			upper = steps(upper, point(from, high[j]), point(to, high[j]))
			lower = steps(lower, point(from, base(j)), point(to, base(j)))
		}
		if low == nil {
			// The upper edge comes down to the ground, so that it can be drawn as a line.
			upper = append([]vg.Point{{X: upper[0].X}}, append(upper, vg.Point{X: upper[len(upper)-1].X})...)
			lower = nil
		}
		for _, pt := range slices.Backward(lower) {
			upper = append(upper, pt)
		}
		polygons = append(polygons, upper)
		i = end
	}
	return polygons
}

// steps appends a level stretch, and makes it longer if it is on the level of the last.
func steps(pts []vg.Point, from, to vg.Point) []vg.Point {
	if n := len(pts); n > 0 && pts[n-1].Y == from.Y {
		pts[n-1] = to
		return pts
	}
	return append(pts, from, to)
}
