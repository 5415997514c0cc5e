//! Nothing: a package that its own tests depend on, for the plugins that they compare with, has to have a library.
