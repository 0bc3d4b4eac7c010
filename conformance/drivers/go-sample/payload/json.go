// Package payload reads and writes payloads: JSON with exact numbers, ordered members and one
// spelling.
package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"gosample/mistake"
)

// MaxDepth is how many levels a payload nests, its own object included. [PAY-3]
const MaxDepth = 100

// Number is the text of a JSON number, which no conversion has rounded.
type Number string

// IsInteger reports whether the text has neither fraction nor exponent.
func (n Number) IsInteger() bool { return !strings.ContainsAny(string(n), ".eE") }

// Float returns the nearest double, an infinity for a number that no double holds.
func (n Number) Float() float64 {
	value, _ := strconv.ParseFloat(string(n), 64)
	return value
}

// Member is a name with its value.
type Member struct {
	Name  string
	Value any
}

// Object is a JSON object in the order of its text.
type Object []Member

// Get returns the value of a name: nil, bool, string, Number, []any or Object.
func (o Object) Get(name string) (value any, present bool) {
	for _, member := range o {
		if member.Name == name {
			return member.Value, true
		}
	}
	return nil, false
}

// Set replaces the value of a name, or appends it.
func (o *Object) Set(name string, value any) {
	for i := range *o {
		if (*o)[i].Name == name {
			(*o)[i].Value = value
			return
		}
	}
	*o = append(*o, Member{name, value})
}

// Prepend puts a member before the others.
func (o *Object) Prepend(name string, value any) { *o = append(Object{{name, value}}, *o...) }

// Delete removes a name.
func (o *Object) Delete(name string) {
	kept := make(Object, 0, len(*o))
	for _, member := range *o {
		if member.Name != name {
			kept = append(kept, member)
		}
	}
	*o = kept
}

// ErrNotObject means JSON that is not an object.
var ErrNotObject = errors.New("JSON, but not an object")

// Decode reads a payload.
func Decode(text string) (Object, error) {
	levels := MaxDepth
	if mistake.Made("reads-99-levels") {
		levels--
	}
	value, err := Parse(text, levels)
	if err != nil {
		return nil, err
	}
	object, ok := value.(Object)
	if !ok {
		return nil, ErrNotObject
	}
	return object, nil
}

// Parse reads one JSON value: nil, bool, string, Number, []any or Object.
func Parse(text string, maxDepth int) (any, error) {
	if mistake.Made("reads-byte-order-mark") {
		text = strings.TrimPrefix(text, "\uFEFF")
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	p := parser{text: text, left: maxDepth}
	p.space()
	value, err := p.value()
	if err != nil {
		return nil, err
	}
	if mistake.Made("ignores-text-behind") {
		return value, nil
	}
	if p.space(); p.at < len(text) {
		return nil, p.fail("text behind the value")
	}
	return value, nil
}

type parser struct {
	text string
	at   int
	left int // levels that may still open
}

func (p *parser) fail(problem string) error { return fmt.Errorf("%s at byte %d", problem, p.at) }

func (p *parser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *parser) skip(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) value() (any, error) {
	if p.at == len(p.text) {
		return nil, p.fail("the text ends")
	}
	switch c := p.text[p.at]; {
	case c == '{':
		return nested(p, p.object)
	case c == '[':
		return nested(p, p.array)
	case c == '"':
		return p.string()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, value := range map[string]any{"null": nil, "true": true, "false": false} {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			return value, nil
		}
	}
	return nil, p.fail("no JSON value")
}

func nested[T any](p *parser, read func() (T, error)) (any, error) {
	if p.left--; p.left < 0 {
		return nil, p.fail("too many levels")
	}
	p.at++
	value, err := read()
	p.left++
	return value, err
}

func (p *parser) object() (Object, error) {
	object, places := Object{}, map[string]int{}
	if p.space(); p.skip('}') {
		return object, nil
	}
	for {
		p.space()
		if p.at == len(p.text) || p.text[p.at] != '"' {
			return nil, p.fail("no name")
		}
		name, err := p.string()
		if err != nil {
			return nil, err
		}
		if p.space(); !p.skip(':') {
			return nil, p.fail("no colon")
		}
		p.space()
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		if place, repeated := places[name]; repeated && !mistake.Made("keeps-duplicates") { // the last value counts [PAY-17]
			if !mistake.Made("first-duplicate-counts") {
				object[place].Value = value
			}
		} else {
			places[name] = len(object)
			object = append(object, Member{name, value})
		}
		if p.space(); p.skip('}') {
			return object, nil
		}
		if !p.skip(',') {
			return nil, p.fail("no comma")
		}
	}
}

func (p *parser) array() ([]any, error) {
	array := []any{}
	if p.space(); p.skip(']') {
		return array, nil
	}
	for {
		p.space()
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		array = append(array, value)
		if p.space(); p.skip(']') {
			return array, nil
		}
		if !p.skip(',') {
			return nil, p.fail("no comma")
		}
	}
}

func (p *parser) number() (Number, error) {
	start := p.at
	digits := func() bool {
		first := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		return p.at > first
	}
	p.skip('-')
	if !p.skip('0') && !digits() {
		return "", p.fail("no digit")
	}
	if p.skip('.') && !digits() {
		return "", p.fail("no digit")
	}
	if p.skip('e') || p.skip('E') {
		if !p.skip('+') {
			p.skip('-')
		}
		if !digits() {
			return "", p.fail("no digit")
		}
	}
	number := Number(p.text[start:p.at])
	if number.IsInteger() && mistake.Made("integers-through-doubles") {
		return Number(strconv.FormatFloat(number.Float(), 'f', 0, 64)), nil
	}
	if !number.IsInteger() && number.Float() == math.Trunc(number.Float()) && mistake.Made("one-number-type") {
		return Number(strconv.FormatFloat(number.Float(), 'f', 0, 64)), nil // as JavaScript does
	}
	return number, nil
}

func (p *parser) string() (string, error) {
	p.at++
	var text strings.Builder
	for p.at < len(p.text) {
		plain := strings.IndexFunc(p.text[p.at:], func(r rune) bool { return r == '"' || r == '\\' || r < ' ' })
		if plain < 0 {
			break
		}
		text.WriteString(p.text[p.at : p.at+plain])
		p.at += plain
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return text.String(), nil
		case c < ' ':
			return "", p.fail("a control character")
		}
		r, err := p.escape()
		if err != nil {
			return "", err
		}
		text.WriteRune(r)
	}
	return "", p.fail("a string without end")
}

func (p *parser) escape() (rune, error) {
	if p.at+1 == len(p.text) {
		return 0, p.fail("a string without end")
	}
	c := p.text[p.at+1]
	if place := strings.IndexByte(`"\/bfnrt`, c); place >= 0 {
		p.at += 2
		return rune("\"\\/\b\f\n\r\t"[place]), nil
	}
	if c != 'u' {
		return 0, p.fail("an unknown escape")
	}
	unit, err := p.unit()
	if unit == 0 && mistake.Made("refuses-nul") { // as C does
		return 0, p.fail("a NUL")
	}
	if err != nil || !utf16.IsSurrogate(unit) {
		return unit, err
	}
	if strings.HasPrefix(p.text[p.at:], `\u`) {
		low, err := p.unit()
		if pair := utf16.DecodeRune(unit, low); err == nil && pair != utf8.RuneError {
			return pair, nil
		}
	}
	if mistake.Made("replaces-halves") { // as encoding/json does
		return utf8.RuneError, nil
	}
	return 0, p.fail("half of a surrogate pair") // [PAY-22] [PAY-24]
}

func (p *parser) unit() (rune, error) {
	if p.at+6 > len(p.text) {
		return 0, p.fail("a string without end")
	}
	unit, err := strconv.ParseUint(p.text[p.at+2:p.at+6], 16, 16)
	if err != nil {
		return 0, p.fail("no hexadecimal digits")
	}
	p.at += 6
	return rune(unit), nil
}

// Encode writes a value as compact JSON. An error names the place of a value that JSON lacks, or
// that readers could not decode; path is the place of value itself.
func Encode(value any, path string) (string, error) {
	var out strings.Builder
	levels := MaxDepth
	if mistake.Made("writes-101-levels") { // as one does who begins to count with args
		levels++
	}
	err := write(&out, value, path, levels)
	return out.String(), err
}

func write(out *strings.Builder, value any, path string, left int) error {
	switch value := value.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(value))
	case string:
		return writeString(out, value, path)
	case Number:
		out.WriteString(string(value))
	case json.Number:
		return write(out, Number(value), path, left)
	case float64:
		if (math.IsNaN(value) || math.IsInf(value, 0)) && mistake.Made("nan-as-null") { // as JSON.stringify does
			out.WriteString("null")
			return nil
		}
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("%s: JSON has no %v [PAY-4]", path, value)
		}
		out.WriteString(Float(value))
	case float32:
		return write(out, float64(value), path, left)
	case []any:
		if left == 0 {
			return tooDeep(path)
		}
		out.WriteByte('[')
		for i, item := range value {
			if i > 0 {
				out.WriteByte(',')
				if mistake.Made("space-after-comma") {
					out.WriteByte(' ')
				}
			}
			if err := write(out, item, fmt.Sprintf("%s[%d]", path, i), left-1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case Object:
		if left == 0 {
			return tooDeep(path)
		}
		out.WriteByte('{')
		for i, member := range value {
			if i > 0 {
				out.WriteByte(',')
			}
			inner := member.Name
			if path != "" {
				inner = path + "." + inner
			}
			if err := writeString(out, member.Name, inner); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := write(out, member.Value, inner, left-1); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	default:
		return writeNative(out, value, path, left)
	}
	return nil
}

// writeNative writes a value of the language: integers, slices, and maps with texts as keys.
func writeNative(out *strings.Builder, value any, path string, left int) error {
	if date, ok := value.(time.Time); ok && mistake.Made("dates-as-texts") { // as encoding/json does
		return writeString(out, date.Format(time.RFC3339Nano), path)
	}
	if mistake.Made("names-no-place") {
		path = "args"
	}
	native := reflect.ValueOf(value)
	switch kind := native.Kind(); {
	case native.CanInt():
		if native.Type().PkgPath() == "" { // a time.Duration or a time.Month is more than a number
			out.WriteString(strconv.FormatInt(native.Int(), 10))
			return nil
		}
	case native.CanUint():
		out.WriteString(strconv.FormatUint(native.Uint(), 10))
		return nil
	case kind == reflect.Slice && native.Type().Elem().Kind() != reflect.Uint8: // not bytes
		items := make([]any, native.Len())
		for i := range items {
			items[i] = native.Index(i).Interface()
		}
		return write(out, items, path, left)
	case kind == reflect.Map && native.Type().Key().Kind() == reflect.String:
		object := Object{}
		for _, key := range native.MapKeys() {
			object = append(object, Member{key.String(), native.MapIndex(key).Interface()})
		}
		sort.Slice(object, func(i, j int) bool { return object[i].Name < object[j].Name })
		return write(out, object, path, left)
	}
	return fmt.Errorf("%s: a %T has no form in JSON [PUSH-5]", path, value)
}

func tooDeep(path string) error {
	return fmt.Errorf("%s: more than %d levels [PAY-3]", path, MaxDepth)
}

func writeString(out *strings.Builder, text, path string) error {
	if mistake.Made("replaces-invalid-text") { // as encoding/json does
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s: a text that is not UTF-8 [PAY-22]", path)
	}
	out.WriteByte('"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '/' && mistake.Made("escapes-slash"):
			out.WriteString(`\/`)
		case c == '\n' && mistake.Made("newline-by-number"):
			out.WriteString(`\u000a`)
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c >= ' ':
			out.WriteByte(c)
		default:
			if place := strings.IndexByte("\b\f\n\r\t", c); place >= 0 {
				out.WriteByte('\\')
				out.WriteByte("bfnrt"[place])
			} else {
				fmt.Fprintf(out, `\u%04x`, c)
			}
		}
	}
	out.WriteByte('"')
	return nil
}

// Float returns the shortest text that reads back to the same double and shows that it is a float.
// [PAY-6] [PAY-25]
func Float(value float64) string {
	form := byte('f')
	if size := math.Abs(value); size != 0 && (size < 1e-4 || size >= 1e16) {
		form = 'e'
	}
	if value == 0 && mistake.Made("loses-minus-zero") {
		value = 0
	}
	text := strconv.FormatFloat(value, form, -1, 64)
	if mistake.Made("floats-of-17-digits") {
		text = strconv.FormatFloat(value, 'g', 17, 64)
	}
	if mistake.Made("whole-floats-as-integers") {
		return text
	}
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}
