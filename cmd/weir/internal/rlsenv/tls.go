package rlsenv

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// serverTLS reads the TLS of the server of GRPC, nil for none.
func (r *reader) serverTLS() *tls.Config {
	use := r.flag("GRPC_SERVER_USE_TLS", false)
	cert, key := r.text("GRPC_SERVER_TLS_CERT", ""), r.text("GRPC_SERVER_TLS_KEY", "")
	authority, name := r.text("GRPC_CLIENT_TLS_CACERT", ""), r.text("GRPC_CLIENT_TLS_SAN", "")
	if !use {
		return nil
	}
	if cert == "" || key == "" {
		r.wrong("GRPC_SERVER_TLS_CERT", cert, "the files of a certificate and, in GRPC_SERVER_TLS_KEY, of its key, as GRPC_SERVER_USE_TLS is true")
		return nil
	}
	pair := &certificate{cert: cert, key: key}
	if err := pair.read(); err != nil {
		r.wrong("GRPC_SERVER_TLS_CERT", cert, "a certificate, and its key in GRPC_SERVER_TLS_KEY: "+err.Error())
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get}
	if authority != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = r.authorities("GRPC_CLIENT_TLS_CACERT", authority, x509.NewCertPool())
	}
	if name != "" {
		if authority == "" {
			r.wrong("GRPC_CLIENT_TLS_SAN", name, "GRPC_CLIENT_TLS_CACERT as well: no certificate of a client would be looked at")
		}
		config.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("weir: the client has no certificate")
			}
			return s.PeerCertificates[0].VerifyHostname(name)
		}
	}
	return config
}

// clientTLS reads the TLS of a client, nil for none.
func (r *reader) clientTLS(use, cert, key, authority string) *tls.Config {
	return r.tlsOf(r.flag(use, false), cert, key, authority)
}

// tlsOf reads the files of a client's TLS, and returns nil if none is used.
func (r *reader) tlsOf(use bool, certName, keyName, authorityName string) *tls.Config {
	cert, key, authority := r.text(certName, ""), r.text(keyName, ""), r.text(authorityName, "")
	if !use {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			r.wrong(certName, cert, "a certificate, and its key in "+keyName+": "+err.Error())
		}
		config.Certificates = []tls.Certificate{pair}
	} else if cert != "" || key != "" {
		r.wrong(certName, cert, "both "+certName+" and "+keyName+", or none of them")
	}
	if authority != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		config.RootCAs = r.authorities(authorityName, authority, pool)
	}
	return config
}

func (r *reader) authorities(name, file string, pool *x509.CertPool) *x509.CertPool {
	data, err := os.ReadFile(file)
	if err != nil {
		r.wrong(name, file, "a file of certificates: "+err.Error())
	} else if !pool.AppendCertsFromPEM(data) {
		r.wrong(name, file, "a file of certificates in PEM: there is none in it")
	}
	return pool
}

// chainOnly makes a client look at a server's certificate but not at the name in it.
func chainOnly(config *tls.Config) {
	config.InsecureSkipVerify = true // VerifyConnection looks
	roots := config.RootCAs
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("weir: the server has no certificate")
		}
		rest := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			rest.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: rest})
		return err
	}
}

// certificate is a certificate in two files, which are read again when they change.
type certificate struct {
	cert, key string

	mu          sync.Mutex
	looked      time.Time
	certs, keys []byte // of both files, as they were last
	pair        *tls.Certificate
}

// lookInterval is the time between two looks at the files.
const lookInterval = time.Second

// get implements tls.Config.GetCertificate. It looks at the files at most once a second, and keeps the last pair that was
// good.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= lookInterval {
		_ = c.reread() // a pair that is being replaced: the one before holds
	}
	if c.pair == nil {
		return nil, fmt.Errorf("weir: no certificate in %s", c.cert)
	}
	return c.pair, nil
}

func (c *certificate) read() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reread()
}

func (c *certificate) reread() error {
	c.looked = time.Now()
	cert, err := os.ReadFile(c.cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.key)
	if err != nil {
		return err
	}
	if c.pair != nil && bytes.Equal(cert, c.certs) && bytes.Equal(key, c.keys) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.certs, c.keys, c.pair = cert, key, &pair
	return nil
}
