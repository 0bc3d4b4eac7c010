// Package script calls the canonical scripts of the specification.
package script

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"gosample/mistake"
	"gosample/redis"
)

// Library is the scripts of a directory by their names.
type Library map[string]Script

// Script is a Lua program with its SHA-1.
type Script struct{ body, digest string }

// Load reads all scripts of a directory.
func Load(directory string) (Library, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.lua"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s has no scripts; name the directory lua/ of the specification", directory)
	}
	library := Library{}
	for _, path := range paths {
		var body []byte
		if body, err = os.ReadFile(path); err != nil {
			break
		}
		digest := sha1.Sum(body)
		library[strings.TrimSuffix(filepath.Base(path), ".lua")] = Script{string(body), hex.EncodeToString(digest[:])}
	}
	return library, err
}

// For a mistake: scripts that were called once.
var once sync.Map

func (l Library) loaded(name string) bool {
	_, was := once.LoadOrStore(name, true)
	return was
}

// Call runs a script, which it loads if the server does not know it. [LUA-3]
func (l Library) Call(pool *redis.Pool, name string, keys, arguments []string) (any, error) {
	script := l[name]
	command := redis.Command{"EVALSHA", script.digest, strconv.Itoa(len(keys))}
	command = append(append(command, keys...), arguments...)
	reply, err := pool.Do(command...)
	if l.loaded(name) && redis.HasCode(err, "NOSCRIPT") && mistake.Made("never-loads-again") {
		return nil, err
	}
	if redis.HasCode(err, "NOSCRIPT") {
		if _, err := pool.Do("SCRIPT", "LOAD", script.body); err != nil {
			return nil, err
		}
		reply, err = pool.Do(command...)
	}
	return reply, err
}
