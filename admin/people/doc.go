// Package people knows who sends a request and which rights they have at this moment: persons of an OpenID Connect
// provider, persons of this admin who come by a link, their sessions, and tokens for programs. It keeps no passwords.
//
// What decides about a request, the grants of all people and groups, tokens, links and sessions, is read from the
// database into memory as one state, and read again when something has changed: what is wrong costs a query for one
// number, which one request makes for all that come at once, and a right that was taken away is gone within two
// seconds in all processes. Without the database there are no rights.
package people
