// Package redis is a thin client of RESP2. It repeats nothing, hides no command, and tells of each
// failure whether the server may have carried the commands out: a client of jobs has to report it.
package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"gosample/mistake"
)

// Error is an error reply of the server, such as "READONLY You can't write ...".
type Error string

func (e Error) Error() string { return string(e) }

// has reports whether the reply has this code. In the text of a script's error it may stand anywhere.
func (e Error) has(code string) bool {
	return strings.HasPrefix(string(e), code+" ") || string(e) == code || strings.Contains(string(e), "-"+code+" ")
}

// HasCode reports whether err is an error reply with one of these codes.
func HasCode(err error, codes ...string) bool {
	var reply Error
	if errors.As(err, &reply) {
		for _, code := range codes {
			if reply.has(code) {
				return true
			}
		}
	}
	return false
}

// Lost is the end of a connection. Sent: all commands were sent, so the server may have obeyed them.
type Lost struct {
	Sent bool
	Err  error
}

func (l *Lost) Error() string { return fmt.Sprintf("connection lost: %v", l.Err) }
func (l *Lost) Unwrap() error { return l.Err }

// Uncertain reports whether commands that ended with err may have been carried out.
func Uncertain(err error) bool {
	var lost *Lost
	return errors.As(err, &lost) && lost.Sent
}

// Command is the words of a command.
type Command []string

// Server is the place of a server and its login.
type Server struct {
	network, address   string
	user, password     string
	database           int
	connectAndReadTime time.Duration
}

// Parse reads a URL such as redis://user:password@host:6379/0. Its errors do not hold the password.
func Parse(text string, timeout time.Duration) (Server, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Server{}, errors.New("the URL of Redis cannot be parsed") // err quotes the whole URL
	}
	s := Server{network: "tcp", connectAndReadTime: timeout}
	switch parsed.Scheme {
	case "redis":
		host, port := parsed.Hostname(), parsed.Port()
		if host == "" {
			host = "127.0.0.1"
		}
		if port == "" {
			port = "6379"
		}
		s.address = net.JoinHostPort(host, port)
		if path := strings.Trim(parsed.Path, "/"); path != "" {
			if s.database, err = strconv.Atoi(path); err != nil {
				return Server{}, fmt.Errorf("database %q in the URL of Redis is not a number", path)
			}
		}
	case "unix":
		s.network, s.address = "unix", parsed.Path
	default:
		return Server{}, fmt.Errorf("scheme %q in the URL of Redis is neither redis nor unix", parsed.Scheme)
	}
	if parsed.User != nil { // percent-decoded; "+" stands for itself
		s.user = parsed.User.Username()
		s.password, _ = parsed.User.Password()
		switch raw := strings.SplitN(parsed.User.String(), ":", 2); {
		case mistake.Made("user-not-decoded"):
			s.user = raw[0]
		case mistake.Made("plus-as-space"):
			s.password = strings.ReplaceAll(s.password, "+", " ")
		}
	}
	return s, nil
}

// Dial connects and logs in.
func (s Server) Dial() (*Conn, error) {
	socket, err := net.DialTimeout(s.network, s.address, s.connectAndReadTime)
	if err != nil {
		return nil, &Lost{Sent: false, Err: err}
	}
	c := &Conn{socket: socket, replies: bufio.NewReader(socket), timeout: s.connectAndReadTime}
	var login []Command
	if mistake.Made("needs-hello") {
		login = append(login, Command{"HELLO", "2"})
	}
	switch {
	case s.user != "":
		login = append(login, Command{"AUTH", s.user, s.password})
	case s.password != "":
		login = append(login, Command{"AUTH", s.password})
	}
	if s.database != 0 {
		login = append(login, Command{"SELECT", strconv.Itoa(s.database)})
	}
	for _, command := range login {
		if _, err := c.Do(command...); err != nil {
			c.Close()
			var reply Error
			if errors.As(err, &reply) {
				return nil, reply
			}
			return nil, &Lost{Sent: false, Err: err} // of the commands to come none was sent
		}
	}
	return c, nil
}

// Conn is one connection, for one goroutine at a time. After a Lost it is closed for good.
type Conn struct {
	socket  net.Conn
	replies *bufio.Reader
	timeout time.Duration
	broken  bool
}

// Close ends the connection.
func (c *Conn) Close() {
	c.broken = true
	c.socket.Close()
}

// Do sends one command and returns its reply: a string, an int64, nil or a []any of these.
func (c *Conn) Do(words ...string) (any, error) { return c.DoWithin(c.timeout, words...) }

// DoWithin is Do with another limit for the reply.
func (c *Conn) DoWithin(limit time.Duration, words ...string) (any, error) {
	replies, err := c.exchange(limit, Command(words))
	if err != nil {
		return nil, err
	}
	if reply, failed := replies[0].(Error); failed {
		return nil, reply
	}
	return replies[0], nil
}

// Pipeline sends commands at once and returns their replies, an Error for each that failed.
func (c *Conn) Pipeline(commands ...Command) ([]any, error) {
	return c.exchange(c.timeout, commands...)
}

// Transaction sends commands between MULTI and EXEC. An error says that none was carried out, or
// that it is uncertain; otherwise each reply may still be an Error.
func (c *Conn) Transaction(commands ...Command) ([]any, error) {
	all := append(append([]Command{{"MULTI"}}, commands...), Command{"EXEC"})
	replies, err := c.exchange(c.timeout, all...)
	if err != nil {
		return nil, err
	}
	if results, ok := replies[len(replies)-1].([]any); ok {
		return results, nil
	}
	if mistake.Made("reports-execabort") {
		return nil, replies[len(replies)-1].(Error)
	}
	for _, reply := range replies { // the first error is the reason; EXEC only says EXECABORT
		if reply, failed := reply.(Error); failed {
			return nil, reply
		}
	}
	return nil, fmt.Errorf("EXEC replied %v", replies[len(replies)-1])
}

func (c *Conn) exchange(limit time.Duration, commands ...Command) ([]any, error) {
	if c.broken {
		return nil, &Lost{Sent: false, Err: net.ErrClosed}
	}
	var request strings.Builder
	for _, command := range commands {
		fmt.Fprintf(&request, "*%d\r\n", len(command))
		for _, word := range command {
			fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	c.socket.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c.socket, request.String()); err != nil {
		c.Close()
		return nil, &Lost{Sent: false, Err: err}
	}
	replies := make([]any, len(commands))
	for i := range replies {
		reply, err := c.read()
		if err != nil {
			if !mistake.Made("keeps-late-connections") {
				c.Close() // the rest of the reply would answer the next command
			}
			return nil, &Lost{Sent: true, Err: err}
		}
		replies[i] = reply
	}
	return replies, nil
}

func (c *Conn) read() (any, error) {
	line, err := c.replies.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return nil, fmt.Errorf("malformed reply %q", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return Error(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	size, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("malformed reply %q", line)
	}
	switch {
	case size < 0:
		return nil, nil
	case kind == '$':
		data := make([]byte, size+2)
		if _, err := io.ReadFull(c.replies, data); err != nil {
			return nil, err
		}
		return string(data[:size]), nil
	case kind == '*':
		items := make([]any, size)
		for i := range items {
			if items[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return nil, fmt.Errorf("unknown reply %q", line)
}

// Pool lends connections to one server.
type Pool struct {
	Server Server
	mutex  sync.Mutex
	idle   []*Conn
}

// With calls use with a connection, which it keeps for the next call unless the connection broke.
func (p *Pool) With(use func(*Conn) error) error {
	p.mutex.Lock()
	var conn *Conn
	if last := len(p.idle) - 1; last >= 0 {
		conn, p.idle = p.idle[last], p.idle[:last]
	}
	p.mutex.Unlock()
	if conn == nil {
		var err error
		if conn, err = p.Server.Dial(); err != nil {
			return err
		}
	}
	err := use(conn)
	if HasCode(err, "READONLY", "NOREPLICAS", "UNBLOCKED") && !mistake.Made("repeats-on-same-connection") { // after a failover the next one leads elsewhere
		conn.Close()
	}
	if !conn.broken {
		p.mutex.Lock()
		p.idle = append(p.idle, conn)
		p.mutex.Unlock()
	}
	return err
}

// Drop closes the idle connections, which may lead to a server that was demoted.
func (p *Pool) Drop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, conn := range p.idle {
		conn.Close()
	}
	p.idle = nil
}

// Do sends one command on some connection.
func (p *Pool) Do(words ...string) (reply any, err error) {
	err = p.With(func(c *Conn) error {
		reply, err = c.Do(words...)
		return err
	})
	return reply, err
}

// Transaction sends commands between MULTI and EXEC on some connection. The first of the commands
// that failed makes the error; the replies tell about the others.
func (p *Pool) Transaction(commands ...Command) (replies []any, err error) {
	err = p.With(func(c *Conn) error {
		if replies, err = c.Transaction(commands...); err != nil {
			return err
		}
		for _, reply := range replies {
			if reply, failed := reply.(Error); failed && !mistake.Made("ignores-errors-in-exec") {
				return reply
			}
		}
		return nil
	})
	return replies, err
}
