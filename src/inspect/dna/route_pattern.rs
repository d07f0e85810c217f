//! Patterns of routes, and the tokens that match.

use super::token_routes::{TokenRoute, TokenRoutes, label};
use crate::config::DnaConfig;
use crate::inspect::subject::InspectError;

/// A pattern: for each step, the modules with parameters, or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePattern(Vec<Option<Vec<u16>>>);

impl RoutePattern {
    /// From one word for each step: modules as in the tables with `+` between them, such as `T0+M4`; `skip` for none;
    /// `*` for any. Steps that are not named match any.
    pub fn parse(text: &str, dna: &DnaConfig) -> Result<Self, InspectError> {
        let known: Vec<String> = (0..dna.modules.computing()).map(|module| label(module, dna)).collect();
        let wrong =
            |found: &str| InspectError::Route { found: found.to_owned(), steps: dna.steps, modules: known.join(", ") };
        let module =
            |name: &str| known.iter().position(|own| own == name).map(|at| at as u16).ok_or_else(|| wrong(name));
        let step = |word: &str| match word {
            "*" => Ok::<_, InspectError>(None),
            "skip" => Ok(Some(Vec::new())),
            word => {
                let mut modules = word.split('+').map(module).collect::<Result<Vec<u16>, _>>()?;
                modules.sort_unstable();
                Ok(Some(modules))
            }
        };
        let steps = text.split_whitespace().map(step).collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() || steps.len() > dna.steps { Err(wrong(text)) } else { Ok(Self(steps)) }
    }

    /// Whether a token's route matches.
    pub fn takes(&self, token_route: &TokenRoute, dna: &DnaConfig) -> bool {
        let route = token_route.route(dna);
        self.0.iter().zip(&route).all(|(wanted, own)| wanted.as_ref().is_none_or(|wanted| wanted == own))
    }

    /// The tokens whose route matches, in order.
    pub fn followers<'a>(&self, token_routes: &'a TokenRoutes, dna: &DnaConfig) -> Vec<&'a TokenRoute> {
        token_routes.all.iter().filter(|token_route| self.takes(token_route, dna)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pool;

    #[test]
    fn a_ribbon_takes_whoever_goes_along_its_steps() {
        let modules = Pool { transformer: 2, mlp: 1, identity: 1, ..Pool::default() };
        let dna = DnaConfig { modules, steps: 3, top_k: 2, skips: None, bias_rate: 1e-3, fixed_routers: false };
        let chosen = vec![vec![2, 0], vec![3, 1], vec![3, 3]];
        let token_route = TokenRoute { token: 0, sequence: 0, position: 0, chosen };
        let takes = |text: &str| RoutePattern::parse(text, &dna).unwrap().takes(&token_route, &dna);
        assert!(takes("T0+M2 T1 skip") && takes("M2+T0") && takes("* T1") && takes("* * skip"));
        assert!(!takes("T0") && !takes("* T0") && !takes("* * T1") && !takes("skip"));
        for wrong in ["", "T0 T1 T0 T1", "T2", "A0", "skip+T0"] {
            let error = RoutePattern::parse(wrong, &dna).unwrap_err().to_string();
            assert!(error.contains("T0, T1, M2") && error.contains("3 steps"), "{error}");
        }
    }
}
