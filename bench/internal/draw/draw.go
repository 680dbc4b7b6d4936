// Package draw writes pictures as SVG that can be read on a light and on a dark ground.
package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Width and Margin are those of a page, in pixels.
const (
	Width  = 900
	Margin = 16
)

// Colours that everybody can tell apart (Okabe and Ito, 2008), by day and by night. A class of the same name is for
// shapes and for text.
const style = `text{font:12px "Liberation Sans",Arial,Helvetica,sans-serif;fill:#1f2328}
path{fill:none;stroke-width:1}.ground{fill:#fff}.title{font-size:17px;font-weight:bold}.note{fill:#59636e}.bold,text.weir{font-weight:bold}
.weir{fill:#0072b2}.orange{fill:#f0b42a}.peer{fill:#9aa5b1}.floor{fill:#d8dee4}text.peer,text.floor{fill:#1f2328}
.line{stroke:#1f2328}.dashed{stroke:#1f2328;stroke-dasharray:4 3}.axis{stroke:#59636e}.grid{stroke:#d8dee4}
@media(prefers-color-scheme:dark){text,text.peer,text.floor{fill:#e6edf3}.ground{fill:#0d1117}.note{fill:#9198a1}
.weir{fill:#3aa0dd}.peer{fill:#6e7781}.floor{fill:#3d444d}.line,.dashed{stroke:#e6edf3}.axis{stroke:#9198a1}.grid{stroke:#3d444d}}`

// Page is a picture that grows downwards.
type Page struct {
	Y float64 // below what has been drawn
	b bytes.Buffer
}

// New begins a picture with its title and a note, which is wrapped.
func New(title, note string) *Page {
	p := &Page{Y: Margin + 18}
	p.Text("title", Margin, p.Y, "", title)
	line := ""
	for word := range strings.FieldsSeq(note) {
		if line != "" && len(line)+1+len(word) > 140 {
			p.note(line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	p.note(line)
	p.Y += 10
	return p
}

func (p *Page) note(line string) {
	p.Y += 18
	p.Text("note", Margin, p.Y, "", line)
}

// Text writes words at a baseline. The anchor is "end", "middle" or "" for the start.
func (p *Page) Text(class string, x, y float64, anchor, words string) {
	if anchor != "" {
		anchor = ` text-anchor="` + anchor + `"`
	}
	fmt.Fprintf(&p.b, `<text class="%s" x="%s" y="%s"%s>`, class, Number(x), Number(y), anchor)
	_ = xml.EscapeText(&p.b, []byte(words)) // a Buffer takes all
	p.b.WriteString("</text>\n")
}

// Box fills a rectangle.
func (p *Page) Box(class string, x, y, width, height float64) {
	fmt.Fprintf(&p.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n",
		class, Number(x), Number(y), Number(width), Number(height))
}

// Path draws a path, in the words of SVG.
func (p *Page) Path(class, d string) {
	if d != "" {
		fmt.Fprintf(&p.b, `<path class="%s" d="%s"/>`+"\n", class, d)
	}
}

// Level draws a level line.
func (p *Page) Level(class string, left, y, right float64) {
	p.Path(class, "M"+Number(left)+" "+Number(y)+"H"+Number(right))
}

// SVG returns the picture, which ends a margin below Y.
func (p *Page) SVG() []byte {
	height := Number(p.Y + Margin)
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%s" viewBox="0 0 %[1]d %[2]s">`+
		"\n<style>%[3]s</style>\n"+`<rect class="ground" width="%[1]d" height="%[2]s"/>`+"\n%[4]s</svg>\n", Width, height, style, p.b.String())
}

// Number returns v to a tenth, as short as can be.
func Number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
