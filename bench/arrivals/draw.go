package main

import (
	"context"
	"strings"
	"time"

	"github.com/weir-go/weir/bench/internal/draw"
)

// Lengths in pixels.
const (
	rowHeight = 92
	rowTitle  = 22
	axis      = 40 // of time
	scale     = 32 // numbers of requests
	between   = 24 // columns
)

// picture plays a pattern through every algorithm and draws a row for each.
func picture(ctx context.Context, p pattern) ([]byte, error) {
	page := draw.New(p.title, p.note)
	legend(page, p)
	if len(p.columns) > 1 {
		page.Y += 20
	}
	top := page.Y
	width := (draw.Width - 2*draw.Margin - between*float64(len(p.columns)-1)) / float64(len(p.columns))
	for i, c := range p.columns {
		left := draw.Margin + float64(i)*(width+between)
		page.Text("bold", left+scale, top-2, "", c.title)
		for j, a := range algorithms {
			limit, err := p.limit(a)
			if err != nil {
				return nil, err
			}
			all, err := play(ctx, p, c, limit)
			if err != nil {
				return nil, err
			}
			y := top + float64(j*rowHeight)
			if i == 0 {
				page.Text("bold", left+scale, y+18, "", p.words(a))
			}
			page.Text("note", left+width, y+18, "end", p.sum(p, c, all))
			panel{page, p, left + scale, y + rowTitle, left + width, y + rowHeight - 4}.draw(count(p, c, all), a == leaky && c.eyes == nil)
		}
		page.Y = top + float64(len(algorithms)*rowHeight)
		for at := time.Duration(0); at <= p.span; at += p.tick {
			x := left + scale + (width-scale)*at.Seconds()/p.span.Seconds()
			page.Text("note", x, page.Y+12, "middle", draw.Number(at.Seconds()))
		}
		page.Text("note", left+scale+(width-scale)/2, page.Y+28, "middle", "seconds")
	}
	page.Y += axis
	return page.SVG(), nil
}

// legend shows what the colours mean.
func legend(page *draw.Page, p pattern) {
	x := float64(draw.Margin)
	entry := func(class, words string) {
		if class == "weir" || class == "orange" {
			page.Box(class, x, page.Y, 18, 11)
		} else {
			page.Level(class, x, page.Y+6, x+18)
		}
		page.Text("", x+24, page.Y+10, "", words)
		x += 60 + 6*float64(len(words))
	}
	whose, line := "", "departing from the leaky bucket's queue"
	if p.columns[0].eyes != nil {
		whose, line = ", of the polite one", "admitted, of the greedy one"
	}
	entry("weir", "admitted"+whose)
	entry("orange", "refused"+whose)
	entry("line", line)
	if p.lines {
		entry("dashed", "the limit's rate")
	}
	page.Text("note", draw.Width-draw.Margin, page.Y+10, "end", "requests per second")
	page.Y += 16
}

// panel is the place of one algorithm's bins.
type panel struct {
	page *draw.Page
	pattern
	left, top, right, bottom float64
}

func (p panel) x(bins float64) float64 {
	return p.left + (p.right-p.left)*bins*bin.Seconds()/p.span.Seconds()
}

func (p panel) y(requests float64) float64 { return p.bottom - (p.bottom-p.top)*requests/p.pattern.top }

// draw draws what the bins hold, and with queue the departures.
func (p panel) draw(of counts, queue bool) {
	for _, v := range p.ticks {
		p.page.Level("grid", p.left, p.y(v), p.right)
		p.page.Text("note", p.left-5, p.y(v)+4, "end", draw.Number(v))
	}
	pad := 0.0
	if p.numbers {
		pad = 0.2 // bars that can be told apart
	}
	var admitted, refused strings.Builder
	for i, n := range of.admitted {
		left, right := p.x(float64(i)+pad), p.x(float64(i)+1-pad)
		bar := func(into *strings.Builder, from, to float64) {
			if to > from {
				into.WriteString("M" + draw.Number(left) + " " + draw.Number(p.y(from)) + "V" + draw.Number(p.y(to)) +
					"H" + draw.Number(right) + "V" + draw.Number(p.y(from)))
			}
		}
		bar(&admitted, 0, n)
		bar(&refused, n, n+of.refused[i])
		if p.numbers {
			top := n + of.refused[i]
			if queue {
				top = max(top, of.departed[i])
			}
			p.page.Text("bold", (left+right)/2, p.y(top)-3, "middle", draw.Number(n))
		}
	}
	p.page.Path("weir", admitted.String())
	p.page.Path("orange", refused.String())
	if p.lines {
		p.page.Level("dashed", p.left, p.y(float64(p.rate)/p.period.Seconds()), p.right)
	}
	if queue {
		p.steps(of.departed)
	}
	p.steps(of.others)
	p.page.Level("axis", p.left, p.bottom, p.right)
}

// steps draws the upper edge of bins, where there is something in them.
func (p panel) steps(values []float64) {
	var d strings.Builder
	for i, v := range values {
		if v > 0 {
			if i == 0 || values[i-1] == 0 {
				d.WriteString("M" + draw.Number(p.x(float64(i))) + " " + draw.Number(p.bottom))
			}
			d.WriteString("V" + draw.Number(p.y(v)) + "H" + draw.Number(p.x(float64(i+1))))
			if i+1 < len(values) && values[i+1] == 0 {
				d.WriteString("V" + draw.Number(p.bottom))
			}
		}
	}
	if d.Len() > 0 {
		p.page.Path("line", d.String())
	}
}
