// Keys of unique jobs (spec/unique.md) in Go: go run key.go < ../../fixtures/vectors/unique-keys.json
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
)

func number(text string) string {
	if !strings.ContainsAny(text, ".eE") {
		return text
	}
	value, _ := strconv.ParseFloat(text, 64)
	scientific := strconv.FormatFloat(value, 'e', -1, 64) // the shortest digits
	digits, exponent, _ := strings.Cut(scientific, "e")
	power, _ := strconv.Atoi(exponent)
	if power < -5 || power >= 16 {
		return digits + "e" + strconv.Itoa(power)
	}
	plain := strconv.FormatFloat(value, 'f', -1, 64)
	if !strings.Contains(plain, ".") {
		plain += ".0"
	}
	return plain
}

// encoding/json escapes characters that stand for themselves here.
func quote(text string) string {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	var out strings.Builder
	for _, char := range text {
		if escape, ok := short[char]; ok {
			out.WriteString(escape)
		} else if char < ' ' {
			fmt.Fprintf(&out, `\u%04x`, char)
		} else {
			out.WriteRune(char)
		}
	}
	return `"` + out.String() + `"`
}

func canonical(value any) string {
	var parts []string
	switch value := value.(type) {
	case json.Number:
		return number(value.String())
	case string:
		return quote(value)
	case []any:
		for _, item := range value {
			parts = append(parts, canonical(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		var names []string
		for name := range value {
			names = append(names, name)
		}
		sort.Strings(names) // by bytes
		for _, name := range names {
			parts = append(parts, quote(name)+":"+canonical(value[name]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case bool:
		return strconv.FormatBool(value)
	}
	return "null"
}

func main() {
	var vectors []struct{ Class, Queue, Json string }
	if err := json.NewDecoder(os.Stdin).Decode(&vectors); err != nil {
		panic(err)
	}
	for _, vector := range vectors {
		decoder := json.NewDecoder(strings.NewReader(vector.Json))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			panic(err)
		}
		text := canonical([]any{vector.Class, vector.Queue, value})
		fmt.Printf("%x\n", sha256.Sum256([]byte(text)))
	}
}
